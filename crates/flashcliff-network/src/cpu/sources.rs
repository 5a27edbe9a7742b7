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

    /// The elements of an output of an earlier stage, as that stage wrote them. A plan of one stage asks for none.
    ///
    /// # Errors
    /// The errors of the host; [`Error::Length`] for a host without such outputs.
    fn output(&self, output: usize) -> Result<Self::Guard<'_>, Self::Error> {
        Err(missing("output", output, 0).into())
    }
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

/// Inputs and parameters in slices, with the outputs of earlier stages.
#[derive(Clone, Copy, Debug)]
pub struct LaterSlices<'s, T> {
    /// The inputs and the parameters.
    pub slices: Slices<'s, T>,
    /// The outputs of earlier stages, in their order.
    pub outputs: &'s [&'s [T]],
}

impl<'s, T> Sources<T> for LaterSlices<'s, T> {
    type Guard<'a>
        = &'s [T]
    where
        Self: 'a;
    type Error = Error;

    fn input(&self, input: usize) -> Result<&'s [T], Error> {
        self.slices.input(input)
    }

    fn parameter(&self, parameter: usize) -> Result<&'s [T], Error> {
        self.slices.parameter(parameter)
    }

    fn output(&self, output: usize) -> Result<&'s [T], Error> {
        find(self.outputs, "output", output)
    }
}

fn find<'s, T>(all: &'s [&'s [T]], what: &'static str, index: usize) -> Result<&'s [T], Error> {
    let found = all.get(index).copied();
    found.ok_or_else(|| missing(what, index, all.len()))
}

fn missing(what: &'static str, index: usize, got: usize) -> Error {
    Error::Length {
        what,
        index,
        expected: index + 1,
        got,
    }
}
