//! The invariant norm of multivectors, and the layer norm of scalars.

use flashcliff::equivariant::{InvariantNorm, NormSizes};

use super::chunk::Chunk;
use super::gains::Gains;
use super::geometry::Geometry;
use super::stage::{Given, Gradients};
use super::{Channels, number};
use crate::Error;
use crate::op::Scalar;
use crate::op::scratch::Buffer;

/// The smallest mean of squared norms that is divided by.
pub(super) const EPS: f64 = 0.01;
/// The number that is added to the variance of scalars.
pub(super) const SCALAR_EPS: f64 = 1e-5;

/// `x / sqrt(max(mean over channels of the invariant norm, 0.01))`, and for scalars a layer norm without bias; both times gains, if it has some.
#[derive(Debug)]
pub(crate) struct Norm {
    core: InvariantNorm,
    pub(super) geometry: Geometry,
    pub(super) channels: Channels,
    pub(super) gains: Option<Gains>,
}

impl Norm {
    pub(crate) fn new(geometry: Geometry, channels: Channels) -> Self {
        Self {
            core: InvariantNorm::new(geometry.algebra),
            geometry,
            channels,
            gains: None,
        }
    }

    pub(crate) fn with_gains(geometry: Geometry, channels: Channels) -> Self {
        Self {
            gains: Some(Gains::new(geometry, channels)),
            ..Self::new(geometry, channels)
        }
    }

    /// The shapes of the parameters: those of the gains.
    pub(crate) fn shapes(&self) -> Vec<Vec<usize>> {
        self.gains.as_ref().map_or_else(Vec::new, Gains::shapes)
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
        given: Given<'_, T>,
        x: &[T],
        y: &mut [T],
    ) -> Result<(), Error> {
        self.normalise(&given.chunk, x, y)?;
        if let Some(gains) = &self.gains {
            gains.scale(given, y);
        }
        Ok(())
    }

    pub(super) fn backward<T: Scalar>(
        &self,
        given: Given<'_, T>,
        x: &[T],
        g: &[T],
        to: Gradients<'_, '_, T>,
    ) -> Result<(), Error> {
        let Some(gains) = &self.gains else {
            return self.gradient(&given.chunk, x, g, to.input);
        };
        let (mut normalised, mut of_normalised) = (Buffer::take(x.len()), Buffer::take(x.len()));
        self.normalise(&given.chunk, x, &mut normalised)?;
        gains.gradient(given, &normalised, g, &mut of_normalised, to.parameters);
        self.gradient(&given.chunk, x, &of_normalised, to.input)
    }

    /// The norm without gains.
    fn normalise<T: Scalar>(
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

    /// Writes the gradient of [`Self::normalise`].
    fn gradient<T: Scalar>(
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

/// Turns the gradient of the result of [`standardise`] into that of its input `s`.
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
