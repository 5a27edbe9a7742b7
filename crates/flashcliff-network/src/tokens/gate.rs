//! Gated nonlinearities.

use flashcliff::{Algebra, Gate, Operator, Signature, ops};

use super::chunk::Layout;
use super::step::Given;
use super::{Channels, Geometry, operators};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// Multivectors times GELU of their scalar blade in its tanh form, and GELU of scalars, exact or in that form too.
///
/// The core's gate of GELU multiplies a multivector by `GELU(x_0) / x_0`. Over the algebra with one blade it is GELU itself.
#[derive(Clone, Debug)]
pub struct Gated {
    pub(crate) geometry: Geometry,
    of_scalar_blade: Operator,
    of_scalars: Operator,
    pub(crate) blades: usize,
    pub(crate) channels: Channels,
    /// Whether scalars have the tanh form.
    #[cfg(feature = "cuda")]
    pub(crate) tanh_scalars: bool,
}

impl Gated {
    /// The nonlinearity of a geometry.
    ///
    /// # Errors
    /// [`Error::Geometry`] for [vectors](Geometry::slim), and the errors of the operators.
    pub fn new(geometry: Geometry, channels: Channels) -> Result<Self, Error> {
        geometry.check_multivectors("a gate by the scalar blade")?;
        let one_blade = Signature::new(0, 0, 0).map_err(flashcliff::Error::from)?;
        let one_blade = Algebra::new(one_blade)?;
        let of_scalars = match geometry.tanh_scalars {
            true => Gate::GeluTanh,
            false => Gate::Gelu,
        };
        Ok(Self {
            geometry,
            of_scalar_blade: ops::gate(one_blade, Gate::GeluTanh)?,
            of_scalars: ops::gate(one_blade, of_scalars)?,
            blades: geometry.blades(),
            channels,
            #[cfg(feature = "cuda")]
            tanh_scalars: geometry.tanh_scalars,
        })
    }

    fn layout(&self, rows: usize) -> Layout {
        Layout {
            blades: self.blades,
            rows,
            channels: self.channels,
        }
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let layout = self.layout(given.chunk.rows());
        let (mv, s) = layout.split(given.x);
        let (to, to_s) = layout.split_mut(y);
        activate(&self.of_scalars, s, to_s)?;
        let len = mv.len() / self.blades;
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

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: &mut [T],
    ) -> Result<(), Error> {
        let layout = self.layout(given.chunk.rows());
        let (mv, s) = layout.split(given.x);
        let (g, g_s) = layout.split(g);
        let (to, to_s) = layout.split_mut(to);
        gradient(&self.of_scalars, s, g_s, to_s)?;
        let len = mv.len() / self.blades;
        let (mut gate, mut of_gate) = (Buffer::take(len), Buffer::take(len));
        activate(&self.of_scalar_blade, &mv[..len], &mut gate)?;
        of_gate.fill(T::default());
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
fn activate<T: Number>(operator: &Operator, x: &[T], to: &mut [T]) -> Result<(), Error> {
    operators::forward(operator, &[x], &[1, 1, x.len()], to)
}

/// Writes the gradient of [`activate`].
fn gradient<T: Number>(operator: &Operator, x: &[T], g: &[T], to: &mut [T]) -> Result<(), Error> {
    operators::backward(operator, &[x], &[1, 1, x.len()], g, &mut [to])
}
