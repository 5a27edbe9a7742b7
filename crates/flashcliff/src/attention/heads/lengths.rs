//! Lengths that are compared with what a shape needs.

use crate::Error;

pub(super) fn check(shape: &[usize], expected: usize, got: usize) -> Result<(), Error> {
    match got == expected {
        true => Ok(()),
        false => Err(mismatch(shape, expected, got)),
    }
}

pub(super) fn at_least(shape: &[usize], expected: usize, got: usize) -> Result<(), Error> {
    match got >= expected {
        true => Ok(()),
        false => Err(mismatch(shape, expected, got)),
    }
}

fn mismatch(shape: &[usize], expected: usize, got: usize) -> Error {
    Error::LengthMismatch {
        shape: shape.to_vec(),
        expected,
        got,
    }
}
