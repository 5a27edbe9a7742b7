//! Gated nonlinearities.

use flashcliff::{Algebra, Gate, Operator, Signature, ops};

use super::Channels;
use super::chunk::Chunk;
use super::geometry::Geometry;
use crate::Error;
use crate::op::Scalar;
use crate::op::function::Array;
use crate::op::operator::{run_backward, run_forward};
use crate::op::scratch::Buffer;

/// Multivectors times GELU of their scalar blade in its tanh form, and GELU of scalars, exact or in that form too.
///
/// The core's gate of GELU multiplies a multivector by `GELU(x_0) / x_0`. Over the algebra with one blade it is GELU itself.
#[derive(Debug)]
pub(crate) struct Gated {
    of_scalar_blade: Operator,
    of_scalars: Operator,
    pub(super) channels: Channels,
    /// Whether scalars have the tanh form.
    pub(super) tanh_scalars: bool,
}

impl Gated {
    pub(crate) fn new(geometry: &Geometry, channels: Channels) -> Result<Self, Error> {
        let one_blade = Signature::new(0, 0, 0).map_err(flashcliff::Error::from)?;
        let one_blade = Algebra::new(one_blade)?;
        let of_scalars = match geometry.tanh_scalars {
            true => Gate::GeluTanh,
            false => Gate::Gelu,
        };
        Ok(Self {
            of_scalar_blade: ops::gate(one_blade, Gate::GeluTanh)?,
            of_scalars: ops::gate(one_blade, of_scalars)?,
            channels,
            tanh_scalars: geometry.tanh_scalars,
        })
    }

    pub(super) fn forward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        let (mv, s) = chunk.split(self.channels, x);
        let (to, to_s) = chunk.split_mut(self.channels, y);
        activate(&self.of_scalars, s, to_s)?;
        let len = mv.len() / chunk.blades;
        let mut gate = Buffer::take(len);
        activate(&self.of_scalar_blade, &mv[..len], &mut gate)?;
        let blades = mv.chunks_exact(len.max(1));
        for (x, to) in blades.zip(to.chunks_exact_mut(len.max(1))) {
            for ((to, &x), &gate) in to.iter_mut().zip(x).zip(&*gate) {
                *to = x * gate;
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
        let (mv, s) = chunk.split(self.channels, x);
        let (g, g_s) = chunk.split(self.channels, g);
        let (to, to_s) = chunk.split_mut(self.channels, to);
        gradient(&self.of_scalars, s, g_s, to_s)?;
        let len = mv.len() / chunk.blades;
        let (mut gate, mut of_gate) = (Buffer::take(len), Buffer::take(len));
        activate(&self.of_scalar_blade, &mv[..len], &mut gate)?;
        of_gate.fill(T::zero());
        let step = len.max(1);
        let blades = mv.chunks_exact(step).zip(g.chunks_exact(step));
        for ((x, g), to) in blades.zip(to.chunks_exact_mut(step)) {
            let sums = of_gate.iter_mut().zip(x);
            for (((to, &g), &gate), (sum, &x)) in to.iter_mut().zip(g).zip(&*gate).zip(sums) {
                *to = g * gate;
                *sum += g * x;
            }
        }
        gradient(&self.of_scalar_blade, &mv[..len], &of_gate, &mut gate)?;
        for (to, &through_gate) in to.iter_mut().zip(&*gate) {
            *to += through_gate;
        }
        Ok(())
    }
}

/// Applies an operator of one blade.
fn activate<T: Scalar>(operator: &Operator, data: &[T], to: &mut [T]) -> Result<(), Error> {
    let shape = &[1, 1, data.len()];
    if !data.is_empty() {
        run_forward(operator, &[Array { data, shape }], to)?;
    }
    Ok(())
}

/// Writes the gradient of [`activate`].
fn gradient<T: Scalar>(
    operator: &Operator,
    data: &[T],
    g: &[T],
    to: &mut [T],
) -> Result<(), Error> {
    let shape = &[1, 1, data.len()];
    if !data.is_empty() {
        let array = |data| Array { data, shape };
        // The gradient of a gate does not read its output.
        run_backward(
            operator,
            &[array(data)],
            array(data),
            &[],
            array(g),
            vec![Some(to)],
        )?;
    }
    Ok(())
}
