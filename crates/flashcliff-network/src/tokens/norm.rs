//! The invariant norm of multivectors beside the layer norm of scalars.

use super::compiled::operator;
use super::programs::norm;
pub(crate) use super::programs::norm::{EPS, SCALAR_EPS};
use super::{Channels, Geometry, Lanes};
use crate::Error;

/// The options of [`Lanes::norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormOptions {
    /// The smallest mean of squared norms that is divided by. Default: 0.01.
    pub eps: f64,
    /// Whether multivectors have gains, `[channels, grades]`, and scalars, `[scalars]`. Default: neither.
    pub gains: [bool; 2],
}

impl Default for NormOptions {
    fn default() -> Self {
        Self {
            eps: EPS,
            gains: [false; 2],
        }
    }
}

impl NormOptions {
    /// The options of a norm with gains of both.
    pub fn with_gains() -> Self {
        Self {
            gains: [true; 2],
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self.eps > 0.0 && self.eps.is_finite() {
            true => Ok(()),
            false => Err(Error::Option {
                option: "eps",
                expected: "a number above 0",
                got: self.eps,
            }),
        }
    }
}

impl Lanes {
    /// The norm of GATr and L-GATr: `x / sqrt(max(mean over channels of Σ over grades |⟨reverse(x_g) x_g⟩|, eps))` of
    /// multivectors, and a layer norm of scalars without bias. With gains both are times those, in the order of
    /// [`Gains`](super::Gains). Blades with a null vector do not count, but are divided too.
    ///
    /// Sources: GATr (arXiv 2305.18415) and L-GATr (arXiv 2405.14806, section 3).
    ///
    /// # Errors
    /// [`Error::Geometry`] for channels of [vectors](Geometry::slim); [`Error::Option`] for an `eps` that is not above 0 and finite.
    pub fn norm(
        geometry: Geometry,
        channels: Channels,
        options: NormOptions,
    ) -> Result<Self, Error> {
        if channels.multivectors > 0 {
            geometry.check_multivectors("the invariant norm")?;
        }
        options.check()?;
        let algebra = geometry.algebra;
        let p = norm::norm(
            algebra.cayley(),
            channels.kinds(),
            options.eps,
            options.gains,
        );
        Self::new(operator(algebra, &p)?, geometry.blades(), channels)
    }
}
