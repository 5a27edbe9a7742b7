//! Errors of the library as Python exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flashcliff::{Error, ops};
use pyo3::create_exception;
use pyo3::exceptions::{
    PyMemoryError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

create_exception!(
    flashcliff,
    UnsupportedError,
    PyNotImplementedError,
    "There is no such operator between these grades, in so many dimensions, or on the device."
);

create_exception!(
    flashcliff,
    CudaError,
    PyRuntimeError,
    "CUDA cannot be used, or a call of it failed."
);

/// The name of a tensor of an operator in Python. The library names weights as its formulas do; operators of users have the names that
/// users gave.
pub(crate) fn name_of<'a>(operator: &str, tensor: &'a str) -> &'a str {
    let is_ours = || ops::TABLE.iter().any(|own| is_made_of(operator, own.name));
    match tensor {
        "w" if is_ours() => "weight",
        "grad_w" if is_ours() => "grad_weight",
        other => other,
    }
}

/// Whether an operator is one of a name, or a derivative of it.
fn is_made_of(operator: &str, name: &str) -> bool {
    let steps = operator.strip_prefix(name);
    let derived = ["_gradient", "_tangent"];
    steps
        .is_some_and(|steps| steps.is_empty() || derived.iter().any(|step| steps.starts_with(step)))
}

/// Gives the tensor that an error is about its name in Python.
pub(crate) fn rename(error: &mut Error) {
    if let Error::ShapeMismatch {
        operator, tensor, ..
    }
    | Error::DtypeMismatch {
        operator, tensor, ..
    }
    | Error::DeviceMismatch {
        operator, tensor, ..
    }
    | Error::BadAddress {
        operator, tensor, ..
    } = error
    {
        *tensor = name_of(operator, tensor).to_owned();
    }
}

/// The exception for an error, with the library's message.
pub(crate) fn raise(mut error: Error) -> PyErr {
    rename(&mut error);
    let message = error.to_string();
    match error {
        Error::UnsupportedGrades { .. }
        | Error::UnsupportedOnCuda { .. }
        | Error::NotDifferentiable { .. }
        | Error::NoBackwardPass { .. }
        | Error::NotMeasured { .. } => UnsupportedError::new_err(message),
        Error::DtypeMismatch { .. } => PyTypeError::new_err(message),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(message),
        // PyTorch raises the same exception for tensors on different devices.
        Error::DeviceMismatch { .. } => PyRuntimeError::new_err(message),
        Error::NoCudaDriver { .. }
        | Error::NoCudaDevice { .. }
        | Error::CudaDriverTooOld { .. }
        | Error::CudaOrdinal { .. }
        | Error::CudaArchitecture { .. }
        | Error::CudaContext { .. }
        | Error::CudaLibrary { .. }
        | Error::Cuda { .. } => CudaError::new_err(message),
        // The other errors are about shapes, options and buffers.
        _ => PyValueError::new_err(message),
    }
}

/// An error of the library, or of one of its crates.
pub(crate) trait Raise {
    /// The exception for the error, with its message.
    fn raised(self) -> PyErr;
}

impl Raise for Error {
    fn raised(self) -> PyErr {
        raise(self)
    }
}

impl Raise for flashcliff_network::Error {
    fn raised(self) -> PyErr {
        match self {
            Self::Core(error) => raise(error),
            error @ (Self::NoGradient { .. } | Self::Independent { .. }) => {
                UnsupportedError::new_err(error.to_string())
            }
            error => PyValueError::new_err(error.to_string()),
        }
    }
}

impl Raise for flashcliff_network::file::Error {
    fn raised(self) -> PyErr {
        use std::io;

        let message = self.to_string();
        match self {
            // The kind of an error of the system chooses among the subclasses of `OSError`.
            Self::Path { source, .. } | Self::Write(source) => {
                io::Error::new(source.kind(), message).into()
            }
            Self::NotStored { .. } => UnsupportedError::new_err(message),
            _ => PyValueError::new_err(message),
        }
    }
}

/// Runs work of the library without the interpreter's lock. A panic, which would be a defect of the library, becomes a
/// `RuntimeError`.
pub(crate) fn detached<T: Send, E: Raise + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    settle(result)
}

/// Does the same as [`detached`], but holds the lock: for work that takes less time than releasing it, and that waits for no
/// other thread.
pub(crate) fn caught<T, E: Raise>(work: impl FnOnce() -> Result<T, E>) -> PyResult<T> {
    settle(catch_unwind(AssertUnwindSafe(work)))
}

fn settle<T, E: Raise>(result: std::thread::Result<Result<T, E>>) -> PyResult<T> {
    match result {
        Ok(result) => result.map_err(Raise::raised),
        Err(panic) => Err(PyRuntimeError::new_err(defect(&*panic))),
    }
}

/// The message for a panic.
pub(crate) fn defect(panic: &(dyn Any + Send)) -> String {
    format!("a defect of flashcliff, please report it: {}", text(panic))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}
