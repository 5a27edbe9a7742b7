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
/// The variable that makes a missing second GPU a failure.
const REQUIRE_TWO: &str = "FLASHCLIFF_REQUIRE_TWO_GPUS";

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

/// The reason why tests cannot run on two GPUs here, if there is one.
fn second_missing() -> Option<&'static str> {
    static REASON: LazyLock<Option<String>> = LazyLock::new(|| {
        if let Err(error) = flashcliff_candle::device::cuda(1) {
            return Some(format!("no second CUDA device: {error}"));
        }
        let nccl = flashcliff_candle::distributed::Communicator::check();
        nccl.err().map(|error| error.to_string())
    });
    found().map_or(Some("no CUDA device"), |_| REASON.as_deref())
}

/// All tests.
pub(crate) struct Tests {
    trials: Vec<Trial>,
    skipped: usize,
    /// The number of tests that need two GPUs and do not have them.
    skipped_on_two: usize,
    required: bool,
}

impl Tests {
    pub(crate) fn new() -> Self {
        Self {
            trials: Vec::new(),
            skipped: 0,
            skipped_on_two: 0,
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

    /// Adds a test that needs two GPUs and fails by panicking. Only `FLASHCLIFF_REQUIRE_TWO_GPUS=1` makes their lack a failure.
    pub(crate) fn add_on_two(
        &mut self,
        name: impl Into<String>,
        run: impl FnOnce() + Send + 'static,
    ) {
        let run = move || {
            run();
            Ok(())
        };
        let required = env::var_os(REQUIRE_TWO).is_some_and(|value| value == "1");
        let trial = match second_missing() {
            Some(reason) if required => Trial::test(name, move || Err(reason.into())),
            None => Trial::test(name, run),
            Some(_) => {
                self.skipped_on_two += 1;
                Trial::test(name, run).with_ignored_flag(true)
            }
        };
        self.trials.push(trial);
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
        if let Some(reason) = second_missing() {
            let count = self.skipped_on_two;
            println!("skipped: {count} tests on two GPUs, {reason}");
        }
        conclusion.exit_code()
    }
}
