//! The invariant norm of multivectors, and the layer norm of scalars.

use flashcliff::equivariant::{InvariantNorm, NormSizes};

use super::chunk::Layout;
use super::step::{Given, Gradients};
use super::{Channels, Gains, Geometry, number};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// The smallest mean of squared norms that is divided by.
pub(crate) const EPS: f64 = 0.01;
/// The number that is added to the variance of scalars.
pub(crate) const SCALAR_EPS: f64 = 1e-5;

/// `x / sqrt(max(mean over channels of the invariant norm, 0.01))`, and for scalars a layer norm without bias; both times gains, if it has some.
#[derive(Clone, Debug)]
pub struct Norm {
    core: InvariantNorm,
    pub(crate) geometry: Geometry,
    pub(crate) channels: Channels,
    pub(crate) gains: Option<Gains>,
}

impl Norm {
    /// The norm without gains.
    pub fn new(geometry: Geometry, channels: Channels) -> Self {
        Self {
            core: InvariantNorm::new(geometry.algebra),
            geometry,
            channels,
            gains: None,
        }
    }

    /// The norm with [`Gains`] of grades.
    pub fn with_gains(geometry: Geometry, channels: Channels) -> Self {
        Self {
            gains: Some(Gains::new(geometry, channels)),
            ..Self::new(geometry, channels)
        }
    }

    fn sizes(&self, rows: usize) -> NormSizes {
        NormSizes {
            rows,
            channels: self.channels.multivectors,
            groups: 1,
        }
    }

    fn layout(&self, rows: usize) -> Layout {
        Layout {
            blades: self.geometry.blades(),
            rows,
            channels: self.channels,
        }
    }

    pub(crate) fn forward<T: Number>(
        &self,
        given: &Given<'_, T>,
        y: &mut [T],
    ) -> Result<(), Error> {
        let rows = given.chunk.rows();
        self.normalise(rows, given.x, y)?;
        if let Some(gains) = &self.gains {
            gains.scale(rows, given.parameters, y);
        }
        Ok(())
    }

    pub(crate) fn backward<T: Number>(
        &self,
        given: &Given<'_, T>,
        g: &[T],
        to: Gradients<'_, T>,
    ) -> Result<(), Error> {
        let (rows, x) = (given.chunk.rows(), given.x);
        let Some(gains) = &self.gains else {
            return to.x.map_or(Ok(()), |to| self.gradient(rows, x, g, to));
        };
        let (mut normalised, mut of_normalised) = (Buffer::take(x.len()), Buffer::take(x.len()));
        if to.parameters.is_some() {
            self.normalise(rows, x, &mut normalised)?;
        }
        let given = Given {
            x: &normalised,
            ..*given
        };
        let of_gains = Gradients {
            x: Some(&mut of_normalised),
            parameters: to.parameters,
            ..Gradients::default()
        };
        gains.backward(&given, g, of_gains);
        to.x.map_or(Ok(()), |to| self.gradient(rows, x, &of_normalised, to))
    }

    /// The norm without gains.
    fn normalise<T: Number>(&self, rows: usize, x: &[T], y: &mut [T]) -> Result<(), Error> {
        let (mv, s) = self.layout(rows).split(x);
        let (to, to_s) = self.layout(rows).split_mut(y);
        self.core.forward(self.sizes(rows), EPS, mv, to)?;
        let width = self.channels.scalars.max(1);
        for (s, to) in s.chunks_exact(width).zip(to_s.chunks_exact_mut(width)) {
            to.copy_from_slice(s);
            standardise(to);
        }
        Ok(())
    }

    /// Writes the gradient of [`Self::normalise`].
    fn gradient<T: Number>(
        &self,
        rows: usize,
        x: &[T],
        g: &[T],
        to: &mut [T],
    ) -> Result<(), Error> {
        let (mv, s) = self.layout(rows).split(x);
        let (g, g_s) = self.layout(rows).split(g);
        let (to, to_s) = self.layout(rows).split_mut(to);
        self.core.backward(self.sizes(rows), EPS, mv, g, to)?;
        let width = self.channels.scalars.max(1);
        let pairs = s.chunks_exact(width).zip(g_s.chunks_exact(width));
        for ((s, g), to) in pairs.zip(to_s.chunks_exact_mut(width)) {
            to.copy_from_slice(g);
            standardise_gradient(s, to);
        }
        Ok(())
    }
}

/// The layer norm of some scalars.
pub(crate) fn standardise<T: Number>(s: &mut [T]) {
    let (mean, scale) = statistics(s);
    s.iter_mut().for_each(|s| *s = (*s - mean) * scale);
}

/// Turns the gradient of the result of [`standardise`] into that of its input `s`.
pub(crate) fn standardise_gradient<T: Number>(s: &[T], g: &mut [T]) {
    let (mean, scale) = statistics(s);
    let count: T = number(s.len() as f64);
    let mut sums = (T::default(), T::default());
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
fn statistics<T: Number>(s: &[T]) -> (T, T) {
    let count: T = number(s.len() as f64);
    let mut sum = T::default();
    s.iter().for_each(|&s| sum += s);
    let mean = sum / count;
    let mut squares = T::default();
    s.iter().for_each(|&s| squares += (s - mean) * (s - mean));
    let deviation = (squares / count + number(SCALAR_EPS)).root();
    (mean, number::<T>(1.0) / deviation)
}
