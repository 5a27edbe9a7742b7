//! The invariant norm of multivectors, and the layer norm of scalars.

use flashcliff::equivariant::{InvariantNorm, NormSizes};

use super::chunk::Chunk;
use super::geometry::Geometry;
use super::{Channels, number};
use crate::Error;
use crate::op::Scalar;

/// The smallest mean of squared norms that is divided by.
pub(super) const EPS: f64 = 0.01;
/// The number that is added to the variance of scalars.
pub(super) const SCALAR_EPS: f64 = 1e-5;

/// `x / sqrt(max(mean over channels of the invariant norm, 0.01))`, and for scalars a layer norm without gain and bias.
#[derive(Debug)]
pub(crate) struct Norm {
    core: InvariantNorm,
    pub(super) geometry: Geometry,
    pub(super) channels: Channels,
}

impl Norm {
    pub(crate) fn new(geometry: Geometry, channels: Channels) -> Self {
        Self {
            core: InvariantNorm::new(geometry.algebra),
            geometry,
            channels,
        }
    }

    fn sizes(&self, rows: usize) -> NormSizes {
        NormSizes {
            rows,
            channels: self.channels.multivectors,
            groups: 1,
        }
    }

    pub(super) fn forward<T: Scalar>(
        &self,
        chunk: &Chunk<'_, T>,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        let (mv, s) = chunk.split(self.channels, x);
        let (to, to_s) = chunk.split_mut(self.channels, y);
        self.core.forward(self.sizes(chunk.rows()), EPS, mv, to)?;
        let width = self.channels.scalars.max(1);
        for (s, to) in s.chunks_exact(width).zip(to_s.chunks_exact_mut(width)) {
            to.copy_from_slice(s);
            standardise(to);
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
        let sizes = self.sizes(chunk.rows());
        self.core.backward(sizes, EPS, mv, g, to)?;
        let width = self.channels.scalars.max(1);
        let rows = s.chunks_exact(width).zip(g_s.chunks_exact(width));
        for ((s, g), to) in rows.zip(to_s.chunks_exact_mut(width)) {
            to.copy_from_slice(g);
            standardise_gradient(s, to);
        }
        Ok(())
    }
}

/// The layer norm of some scalars.
pub(super) fn standardise<T: Scalar>(s: &mut [T]) {
    let (mean, scale) = statistics(s);
    s.iter_mut().for_each(|s| *s = (*s - mean) * scale);
}

/// Makes of the gradient of what [`standardise`] makes of `s` that of `s`.
pub(super) fn standardise_gradient<T: Scalar>(s: &[T], g: &mut [T]) {
    let (mean, scale) = statistics(s);
    let count: T = number(s.len() as f64);
    let mut sums = (T::zero(), T::zero());
    for (&s, &g) in s.iter().zip(&*g) {
        sums.0 += g;
        sums.1 += g * (s - mean) * scale;
    }
    let (of_g, of_product) = (sums.0 / count, sums.1 / count);
    for (&s, g) in s.iter().zip(g) {
        *g = (*g - of_g - (s - mean) * scale * of_product) * scale;
    }
}

/// The mean, and one over the standard deviation.
fn statistics<T: Scalar>(s: &[T]) -> (T, T) {
    let count: T = number(s.len() as f64);
    let mut sum = T::zero();
    s.iter().for_each(|&s| sum += s);
    let mean = sum / count;
    let mut squares = T::zero();
    s.iter().for_each(|&s| squares += (s - mean) * (s - mean));
    let deviation = (squares / count + number(SCALAR_EPS)).root();
    (mean, T::one() / deviation)
}
