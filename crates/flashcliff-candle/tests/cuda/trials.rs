//! Runs the tests as libtest would, but counts skipped ones with the reason.

use std::env;
use std::process::ExitCode;
use std::sync::LazyLock;

use candle_core::Device;
use flashcliff::{Algebra, ops};
use flashcliff_candle::Error;
use libtest_mimic::{Arguments, Trial};

/// The variable that makes a missing GPU a failure.
const REQUIRE: &str = "FLASHCLIFF_REQUIRE_GPU";

/// The first GPU, or the reason why there is none.
pub(crate) fn found() -> Result<&'static Device, &'static Error> {
    static FOUND: LazyLock<Result<Device, Error>> =
        LazyLock::new(|| flashcliff_candle::device::cuda(0));
    FOUND.as_ref()
}

/// The GPU. Tests that need one fail here if there is none.
pub(crate) fn gpu() -> &'static Device {
    found().unwrap_or_else(|error| panic!("no CUDA device: {error}"))
}

/// The reason why tests cannot run on a GPU here, if there is one.
fn missing() -> Option<&'static str> {
    static REASON: LazyLock<Option<String>> = LazyLock::new(|| {
        if let Err(error) = found() {
            return Some(format!("no CUDA device: {error}"));
        }
        let kernels = flashcliff::Device::cuda(0).and_then(|device| {
            // The tests are of all algebras.
            Algebra::shipped().try_for_each(|a| ops::reverse(a)?.on_cuda(&device).map(drop))
        });
        let reason = |error| format!("built without feature flashcliff/all-algebras: {error}");
        kernels.err().map(reason)
    });
    REASON.as_deref()
}

/// All tests.
pub(crate) struct Tests {
    trials: Vec<Trial>,
    skipped: usize,
    required: bool,
}

impl Tests {
    pub(crate) fn new() -> Self {
        Self {
            trials: Vec::new(),
            skipped: 0,
            required: env::var_os(REQUIRE).is_some_and(|value| value == "1"),
        }
    }

    /// Adds a test that needs no GPU.
    pub(crate) fn add_anywhere(&mut self, name: &str, run: fn()) {
        let run = move || {
            run();
            Ok(())
        };
        self.trials.push(Trial::test(name, run));
    }

    /// Adds a test that needs a GPU and fails by panicking.
    pub(crate) fn add(&mut self, name: impl Into<String>, run: impl FnOnce() + Send + 'static) {
        let name = name.into();
        let run = move || {
            run();
            Ok(())
        };
        self.trials.push(match missing() {
            None => Trial::test(name, run),
            Some(reason) if self.required => Trial::test(name, move || Err(reason.into())),
            Some(_) => {
                self.skipped += 1;
                Trial::test(name, run).with_ignored_flag(true)
            }
        });
    }

    pub(crate) fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        // The device has one stream, on which a capture would record the work of other tests, and the process has one precision.
        arguments.test_threads.get_or_insert(1);
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        match missing() {
            None => println!("GPU: found"),
            Some(reason) => println!("skipped: {} tests, {reason}", self.skipped),
        }
        conclusion.exit_code()
    }
}
