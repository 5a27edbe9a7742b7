//! Options as Python names them.

use std::str::FromStr;

use flashcliff::{Bias, Error, UnknownOption};
use pyo3::prelude::*;

use crate::error::raise;

/// An option by its name. Python writes underscores, the library hyphens.
pub(crate) fn named<T: FromStr<Err = UnknownOption>>(name: &str) -> PyResult<T> {
    name.replace('_', "-")
        .parse()
        .map_err(|error: UnknownOption| raise(error.into()))
}

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

/// A bias by its name: `all` is on every blade.
pub(crate) fn bias(name: Option<&str>) -> PyResult<Bias> {
    match name {
        None => Ok(Bias::None),
        Some("scalar") => Ok(Bias::Scalar),
        Some("all") => Ok(Bias::EveryBlade),
        Some(other) => Err(raise(Error::UnknownOption(UnknownOption {
            what: "bias mode",
            expected: "scalar, all".to_owned(),
            got: other.to_owned(),
        }))),
    }
}
