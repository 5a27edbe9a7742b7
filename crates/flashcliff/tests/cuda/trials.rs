//! Runs the tests as libtest would, but counts skipped ones with their reasons.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs, thread};

use flashcliff::Algebra;
use libtest_mimic::{Arguments, Conclusion, Trial};

use crate::device;

/// The variable that makes a missing GPU a failure.
const REQUIRE: &str = "FLASHCLIFF_REQUIRE_GPU";
/// The variable that names a file for the numbers.
const JSON: &str = "FLASHCLIFF_TEST_JSON";
/// The largest number of threads. Most of the time goes to references on the CPU, but each thread holds device memory
/// too.
const MOST_THREADS: usize = 8;

/// The requirements of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needs {
    Nothing,
    Gpu,
    /// A GPU and NVIDIA's library of matrix products.
    CublasLt,
    /// A GPU with this many bytes of free memory.
    Memory(usize),
}

/// All tests.
pub(crate) struct Tests {
    trials: Vec<Trial>,
    /// The names of the skipped tests, with their reasons.
    skipped: Vec<(String, String)>,
    required: bool,
}

impl Tests {
    pub(crate) fn new() -> Self {
        Self {
            trials: Vec::new(),
            skipped: Vec::new(),
            required: env::var_os(REQUIRE).is_some_and(|value| value == "1"),
        }
    }

    /// Adds a test, which fails by panicking.
    pub(crate) fn add(
        &mut self,
        needs: Needs,
        name: impl Into<String>,
        run: impl FnOnce() + Send + 'static,
    ) {
        let name = name.into();
        let run = move || {
            run();
            Ok(())
        };
        // Memory is never required: a smaller GPU is not a mistake.
        let required = self.required && !matches!(needs, Needs::Memory(_) if has_gpu());
        self.trials.push(match missing(needs) {
            None => Trial::test(name, run),
            Some(reason) if required => Trial::test(name, move || Err(reason.into())),
            Some(reason) => {
                self.skipped.push((name.clone(), reason));
                Trial::test(name, run).with_ignored_flag(true)
            }
        });
    }

    /// Adds a test for each shipped algebra.
    pub(crate) fn add_for_each_algebra(&mut self, needs: Needs, name: &str, run: fn(Algebra)) {
        for algebra in device::algebras() {
            let name = format!("{name}::{}", algebra.name());
            self.add(needs, name, move || run(algebra));
        }
    }

    pub(crate) fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        if arguments.test_threads.is_none() {
            let cores = thread::available_parallelism().map_or(1, |n| n.get());
            arguments.test_threads = Some(cores.min(MOST_THREADS));
        }
        let start = Instant::now();
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        let seconds = start.elapsed().as_secs_f64();
        if arguments.list {
            return conclusion.exit_code();
        }
        if let Ok(device) = device::found() {
            println!("GPU: {}", device.name().unwrap_or_default());
        }
        let reasons = reasons(&self.skipped, &arguments);
        for (reason, count) in &reasons {
            println!("skipped: {count} tests, {reason}");
        }
        match write_json(&conclusion, &reasons, seconds) {
            Ok(()) => conclusion.exit_code(),
            Err(message) => {
                eprintln!("error: {message}");
                ExitCode::FAILURE
            }
        }
    }
}

fn has_gpu() -> bool {
    device::found().is_ok()
}

/// The reason why a test cannot run here, if there is one.
fn missing(needs: Needs) -> Option<String> {
    if matches!(needs, Needs::Nothing) {
        return None;
    }
    if let Err(error) = device::found() {
        return Some(format!("no CUDA device: {error}"));
    }
    if let Err(error) = device::kernels() {
        return Some(format!(
            "built without feature all-algebras or jit: {error}"
        ));
    }
    match needs {
        Needs::CublasLt => device::cublas_lt()
            .err()
            .map(|error| format!("no cuBLASLt: {error}")),
        Needs::Memory(bytes) if device::free_memory() < bytes => {
            let gib = bytes as f64 / f64::from(1 << 30);
            Some(format!("not enough device memory: {gib:.0} GiB needed"))
        }
        _ => None,
    }
}

/// The number of skipped tests for each reason, among the tests that were asked for.
fn reasons(skipped: &[(String, String)], arguments: &Arguments) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    if arguments.ignored || arguments.include_ignored {
        return reasons;
    }
    let matches = |pattern: &String, name: &str| match arguments.exact {
        true => pattern == name,
        false => name.contains(pattern.as_str()),
    };
    for (name, reason) in skipped {
        let chosen = arguments.filter.as_ref().is_none_or(|f| matches(f, name));
        if chosen && !arguments.skip.iter().any(|s| matches(s, name)) {
            *reasons.entry(reason.clone()).or_insert(0) += 1;
        }
    }
    reasons
}

fn write_json(
    conclusion: &Conclusion,
    reasons: &BTreeMap<String, usize>,
    seconds: f64,
) -> Result<(), String> {
    let Some(path) = env::var_os(JSON) else {
        return Ok(());
    };
    let gpu = device::found().ok().and_then(|device| device.name().ok());
    let text = serde_json::json!({
        "gpu": gpu,
        "passed": conclusion.num_passed,
        "failed": conclusion.num_failed,
        "skipped": conclusion.num_ignored,
        "reasons": reasons,
        "seconds": (seconds * 10.0).round() / 10.0,
    });
    let text = format!("{text:#}\n");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
