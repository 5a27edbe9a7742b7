//! Runs the tests as libtest would, but counts skipped ones with the reason.

use std::env;
use std::process::ExitCode;
use std::sync::LazyLock;

use flashcliff::{Device, Error, ops};
use flashcliff_network::tokens::Geometry;
use libtest_mimic::{Arguments, Trial};

/// The first GPU, or the reason why there is none. cudarc orders no memory there, so that runs can be captured.
fn found() -> Result<&'static Device, &'static Error> {
    static FOUND: LazyLock<Result<Device, Error>> = LazyLock::new(|| {
        let device = Device::cuda(0)?;
        // SAFETY: tests use memory on one stream each, and wait for it before they read.
        unsafe { device.context().disable_event_tracking() };
        Ok(device)
    });
    FOUND.as_ref()
}

/// The GPU. Tests that need one fail here if there is none.
pub(crate) fn device() -> &'static Device {
    found().unwrap_or_else(|error| panic!("no CUDA device: {error}"))
}

/// The reason why tests cannot run here, if there is one.
fn missing() -> Option<&'static str> {
    static REASON: LazyLock<Option<String>> = LazyLock::new(|| {
        if let Err(error) = found() {
            return Some(format!("no CUDA device: {error}"));
        }
        // An algebra whose kernels few builds have, and functions that none has.
        let geometry = Geometry::gatr().expect("a signature that is supported");
        let kernels = ops::reverse(geometry.algebra)
            .and_then(|operator| operator.on_cuda(device()).map(drop))
            .and_then(|()| {
                let rows = flashcliff::cuda::rows::Rows::new(device(), flashcliff::Dtype::F32);
                rows.map(drop)
            });
        let reason = |error| format!("built without feature flashcliff/jit: {error}");
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
            required: env::var_os("FLASHCLIFF_REQUIRE_GPU").is_some_and(|value| value == "1"),
        }
    }

    /// Adds a test, which fails by panicking.
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
        // Each test has the GPU for itself.
        arguments.test_threads.get_or_insert(1);
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        match missing() {
            None => println!("GPU: found"),
            Some(reason) => println!("skipped: {} tests, {reason}", self.skipped),
        }
        conclusion.exit_code()
    }
}
