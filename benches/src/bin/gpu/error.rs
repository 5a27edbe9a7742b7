//! The errors of a measurement.

use std::io;
use std::path::PathBuf;

use flashcliff::cuda::cudarc::driver::DriverError;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// An error of the library.
    #[error(transparent)]
    Flashcliff(#[from] flashcliff::Error),
    /// An error of the driver.
    #[error("{call}: {source:?}")]
    Driver {
        call: &'static str,
        source: DriverError,
    },
    /// A kernel could not be launched.
    #[error("{call} returned {code}")]
    Kernel { call: &'static str, code: i32 },
    /// A capture gave no graph.
    #[error("nothing was captured into the graph of {name}")]
    EmptyGraph { name: String },
    /// The operator to be measured gives a wrong result.
    #[error(
        "{case}: element {element} of {tensor}: expected {expected:e} within {allowed:e}, got {got:e}"
    )]
    Wrong {
        case: String,
        tensor: String,
        element: usize,
        expected: f64,
        allowed: f64,
        got: f64,
    },
    /// A tensor has a wrong number of elements.
    #[error("{case}: expected {expected} elements of {tensor}, got {got}")]
    Length {
        case: String,
        tensor: String,
        expected: usize,
        got: usize,
    },
    /// A process for a first call failed.
    #[error("the first call of Cl({signature}) failed: {reason}")]
    Child { signature: String, reason: String },
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The results cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A function for `map_err`: an error of the driver, with the call that failed.
pub(crate) fn driver(call: &'static str) -> impl Fn(DriverError) -> Error {
    move |source| Error::Driver { call, source }
}
