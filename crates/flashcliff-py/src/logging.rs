//! Messages of the library, which go to the crate `log`, as records of the logger `flashcliff` of Python's `logging`.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;

/// Whether the interpreter begins to shut down. A thread that asked for its lock then would not come back.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// A message that Python has from elsewhere.
static KNOWN: OnceLock<String> = OnceLock::new();

thread_local! {
    /// Whether messages of this thread reach Python in another way.
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Forwards messages to Python.
///
/// A message is emitted on the thread that it comes from, which waits for the interpreter's lock. This ends, because no
/// thread holds that lock while it waits for work of the library: such work runs in [`crate::error::detached`], and what
/// runs in [`crate::error::caught`] starts no threads and takes no lock under which the library logs.
struct Forward;

impl Log for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("flashcliff")
    }

    fn log(&self, record: &Record<'_>) {
        let heard = self.enabled(record.metadata()) && !SILENT.get();
        if !heard || CLOSED.load(Ordering::Acquire) {
            return;
        }
        let text = record.args().to_string();
        if KNOWN.get() == Some(&text) {
            return;
        }
        Python::try_attach(|py| {
            if let Err(error) = emit(py, record.level(), text) {
                keep(py, error);
            }
        });
    }

    fn flush(&self) {}
}

/// `logging` is imported by the first message, because that takes longer than the import of this package's extension.
fn emit(py: Python<'_>, level: Level, text: String) -> PyResult<()> {
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("flashcliff",))?;
    logger.call_method1("log", (number(level), "%s", text))?;
    Ok(())
}

/// The number of a level in Python.
fn number(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug => 10,
        Level::Trace => 5,
    }
}

/// Keeps an exception of a filter or a handler from being lost: the operator that logs cannot raise it.
fn keep(py: Python<'_>, error: PyErr) {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // Ctrl-C arrived while Python ran. It is raised when the operator returns.
        // SAFETY: this thread holds the interpreter's lock.
        unsafe { ffi::PyErr_SetInterrupt() };
    } else {
        error.write_unraisable(py, None);
    }
}

/// Forwards messages from now on, until the interpreter shuts down.
pub(crate) fn start(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Another module of this process that contains this extension may have done so.
    if log::set_logger(&Forward).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
    let stop = wrap_pyfunction!(stop_logging, module)?;
    py.import("atexit")?.call_method1("register", (stop,))?;
    Ok(())
}

#[pyfunction]
fn stop_logging() {
    CLOSED.store(true, Ordering::Release);
}

/// Leaves a message out, if there is one, because Python has it from elsewhere. The first one counts.
pub(crate) fn leave_out(message: Option<String>) {
    if let Some(message) = message {
        let _ = KNOWN.set(message);
    }
}

/// Runs work whose messages on this thread reach Python in another way.
pub(crate) fn silent<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            SILENT.set(self.0);
        }
    }
    let _restored = Restored(SILENT.replace(true));
    work()
}
