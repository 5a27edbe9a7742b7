//! The tensors that a host lends to a run on the CPU.

use std::ops::Deref;

use crate::Error;

/// The inputs and parameters of a host. A run holds those that a node reads while the node runs.
pub trait Sources<T> {
    /// The elements of a tensor, which stay as they are while this lives.
    type Guard<'a>: Deref<Target = [T]>
    where
        Self: 'a;

    /// The error of a tensor that cannot be read.
    type Error: From<Error>;

    /// The elements of an input, in the order of its axes.
    ///
    /// # Errors
    /// The errors of the host, of a tensor that cannot be read.
    fn input(&self, input: usize) -> Result<Self::Guard<'_>, Self::Error>;

    /// The elements of a parameter, in the order of its axes.
    ///
    /// # Errors
    /// The errors of the host, of a tensor that cannot be read.
    fn parameter(&self, parameter: usize) -> Result<Self::Guard<'_>, Self::Error>;
}

/// Inputs and parameters in slices.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'s, T> {
    /// The inputs, in their order.
    pub inputs: &'s [&'s [T]],
    /// The parameters, in their order.
    pub parameters: &'s [&'s [T]],
}

impl<'s, T> Sources<T> for Slices<'s, T> {
    type Guard<'a>
        = &'s [T]
    where
        Self: 'a;
    type Error = Error;

    fn input(&self, input: usize) -> Result<&'s [T], Error> {
        find(self.inputs, "input", input)
    }

    fn parameter(&self, parameter: usize) -> Result<&'s [T], Error> {
        find(self.parameters, "parameter", parameter)
    }
}

fn find<'s, T>(all: &'s [&'s [T]], what: &'static str, index: usize) -> Result<&'s [T], Error> {
    all.get(index).copied().ok_or(Error::Length {
        what,
        index,
        expected: index + 1,
        got: all.len(),
    })
}
