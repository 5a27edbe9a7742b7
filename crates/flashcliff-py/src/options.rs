//! Options that Python alone has.

use flashcliff::Error;
use pyo3::prelude::*;

use crate::error::raise;

/// The bytes that a block of rows may take; `None` leaves them to the library.
pub(crate) fn block_bytes(bytes: Option<i64>) -> PyResult<Option<usize>> {
    let checked = |bytes: i64| match usize::try_from(bytes) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(raise(Error::InvalidOption {
            option: "block_bytes",
            expected: "at least 1, or None",
            got: bytes as f64,
        })),
    };
    bytes.map(checked).transpose()
}
