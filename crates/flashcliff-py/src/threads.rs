//! The threads of the operators on the CPU: the rule of [`flashcliff::threads`], with PyTorch's number as a ceiling.

use flashcliff::Error;
use flashcliff::threads;
use pyo3::exceptions::{PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::{error, logging};

/// The function `torch.get_num_threads`, once PyTorch is imported.
static TORCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Runs work of the library without the interpreter's lock, with the number of threads that is in force for this call.
pub(crate) fn detached<T: Send, E: error::Raise + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    let ceiling = ceiling(py)?;
    error::detached(py, || threads::at_most(ceiling, work))
}

/// The largest number of threads of a call: PyTorch's, unless a number was set.
fn ceiling(py: Python<'_>) -> PyResult<usize> {
    if threads::is_set() {
        return Ok(usize::MAX);
    }
    let Some(get_num_threads) = torch(py)? else {
        return Ok(usize::MAX);
    };
    get_num_threads.call0(py)?.extract(py)
}

fn torch(py: Python<'_>) -> PyResult<Option<&'static Py<PyAny>>> {
    if let Some(found) = TORCH.get(py) {
        return Ok(Some(found));
    }
    let modules = py.import("sys")?.getattr("modules")?;
    let Some(torch) = modules.cast::<PyDict>()?.get_item("torch")? else {
        return Ok(None);
    };
    // A module that is half imported, or another module of this name, does not have the function.
    match torch.getattr_opt("get_num_threads")? {
        Some(found) => Ok(Some(TORCH.get_or_init(py, || found.unbind()))),
        None => Ok(None),
    }
}

/// The number of threads that operators on the CPU use.
#[pyfunction]
pub(crate) fn get_num_threads(py: Python<'_>) -> PyResult<usize> {
    detached(py, || {
        threads::choice()?;
        Ok::<_, Error>(threads::count())
    })
}

/// Makes operators on the CPU use a number of threads. Results do not depend on it.
///
/// Else it is `RAYON_NUM_THREADS`, or else the first of `OMP_NUM_THREADS`, or else the number of CPUs; and at most
/// `torch.get_num_threads()`. At most eight threads for each CPU are started.
#[pyfunction]
pub(crate) fn set_num_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    let choice = py.detach(|| logging::silent(|| threads::set(threads)));
    warn(py, choice.map_err(raise)?.note())
}

/// Checks the environment, and warns if there are fewer threads than it asks for.
pub(crate) fn set_default(py: Python<'_>) -> PyResult<()> {
    let choice = threads::choice().map_err(raise)?;
    // Forked processes find all of this done: a first use that a fork interrupts would stay half done.
    let _ = (
        flashcliff::Tier::best(),
        flashcliff::Algebra::shipped().count(),
    );
    let note = choice.note();
    // The first operator that has work for the threads logs it.
    logging::leave_out(note.clone());
    warn(py, note)
}

fn warn(py: Python<'_>, note: Option<String>) -> PyResult<()> {
    let Some(note) = note else {
        return Ok(());
    };
    let note = std::ffi::CString::new(note)?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &note, 1)
}

fn raise(error: Error) -> PyErr {
    match error {
        Error::Threads { .. } => PyRuntimeError::new_err(error.to_string()),
        error => error::raise(error),
    }
}

/// Makes a forked process forget the threads of its parent, which it does not have. It then computes on the calling
/// thread.
#[pyfunction]
pub(crate) fn after_fork() {
    threads::after_fork();
}
