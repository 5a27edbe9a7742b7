//! Gated nonlinearities.

use flashcliff::{Algebra, Gate, Operator, Signature, ops};

use super::chunk::Chunk;
use super::{BLADES, Channels, algebra};
use crate::Error;
use crate::op::Scalar;
use crate::op::function::Array;
use crate::op::operator::{run_backward, run_forward};

/// Multivectors times the gate of their scalar blade that makes the scalar its GELU in the tanh form, and the exact GELU of scalars.
#[derive(Debug)]
pub(crate) struct Gated {
    multivectors: Operator,
    /// The gate of the algebra of one blade.
    scalars: Operator,
    pub(super) channels: Channels,
}

impl Gated {
    pub(crate) fn new(channels: Channels) -> Result<Self, Error> {
        let scalars = Signature::new(0, 0, 0).map_err(flashcliff::Error::from)?;
        Ok(Self {
            multivectors: ops::gate(algebra()?, Gate::GeluTanh)?,
            scalars: ops::gate(Algebra::new(scalars)?, Gate::Gelu)?,
            channels,
        })
    }

    /// The operators with the shapes of their inputs.
    fn parts(&self, rows: usize) -> [(&Operator, [usize; 3]); 2] {
        [
            (
                &self.multivectors,
                [BLADES, rows, self.channels.multivectors],
            ),
            (&self.scalars, [1, rows, self.channels.scalars]),
        ]
    }

    pub(super) fn forward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        let (x, y) = (
            chunk.split(self.channels, x),
            chunk.split_mut(self.channels, y),
        );
        let tensors = [(x.0, y.0), (x.1, y.1)];
        for ((operator, shape), (data, to)) in self.parts(chunk.rows()).into_iter().zip(tensors) {
            if !data.is_empty() {
                let shape = &shape;
                run_forward(operator, &[Array { data, shape }], to)?;
            }
        }
        Ok(())
    }

    pub(super) fn backward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        x: &[T],
        g: &[T],
        to: &mut [T],
    ) -> Result<(), Error> {
        let (x, g) = (chunk.split(self.channels, x), chunk.split(self.channels, g));
        let to = chunk.split_mut(self.channels, to);
        let tensors = [(x.0, g.0, to.0), (x.1, g.1, to.1)];
        for ((operator, shape), (x, g, to)) in self.parts(chunk.rows()).into_iter().zip(tensors) {
            if !x.is_empty() {
                let array = |data| Array {
                    data,
                    shape: &shape,
                };
                // The gradient of a gate does not read its output.
                run_backward(
                    operator,
                    &[array(x)],
                    array(x),
                    &[],
                    array(g),
                    vec![Some(to)],
                )?;
            }
        }
        Ok(())
    }
}
