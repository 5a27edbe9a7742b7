//! The invariant norm, and the gated nonlinearity.

use candle_core::Result;

use super::part::{Function, Part};
use super::{Channels, Geometry, Tokens};
use crate::Error;
use crate::op::transformer::gate::Gated;
use crate::op::transformer::norm::Norm;
use crate::op::transformer::stage::Stage;

pub(super) fn norm(geometry: Geometry, channels: Channels) -> Part {
    Part::plain(Stage::Norm(Norm::new(geometry, channels)))
}

pub(super) fn gate(channels: Channels) -> std::result::Result<Part, Error> {
    Ok(Part::plain(Stage::Gated(Gated::new(channels)?)))
}

/// `x / sqrt(max(mean over channels of <x, x>, 0.01))`, and a layer norm of the scalars. Neither has parameters.
///
/// `<x, x>` is the sum over grades of the magnitudes of squared norms: in GATr the sum of the squares of the blades without the null vector. Scalars
/// have the eps `1e-5`.
///
/// Sources: GATr (arXiv 2305.18415, section 3), L-GATr (arXiv 2405.14806, section 3).
#[derive(Clone, Debug)]
pub struct EquiLayerNorm {
    function: Function,
}

impl EquiLayerNorm {
    /// A norm of GATr of so many channels.
    ///
    /// # Errors
    /// None: the algebra is supported.
    pub fn new(channels: Channels) -> std::result::Result<Self, Error> {
        Ok(Self::over(Geometry::gatr()?, channels))
    }

    /// A norm over a geometry, or an algebra.
    pub fn over(geometry: impl Into<Geometry>, channels: Channels) -> Self {
        let geometry = geometry.into();
        Self {
            function: Function::new("equi_layer_norm", geometry, norm(geometry, channels)),
        }
    }

    /// Applies the norm.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.function.apply(x, None)
    }
}

/// Multivectors times `g(x_0)`, and GELU of scalars.
///
/// `g(z) = z / 2 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))` is GELU in its tanh form, as in GATr; scalars have the exact form.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct ScalarGate {
    function: Function,
}

impl ScalarGate {
    /// A gate of GATr of so many channels.
    ///
    /// # Errors
    /// The errors of the core.
    pub fn new(channels: Channels) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, channels)
    }

    /// A gate over a geometry, or an algebra.
    ///
    /// # Errors
    /// The errors of the core.
    pub fn over(
        geometry: impl Into<Geometry>,
        channels: Channels,
    ) -> std::result::Result<Self, Error> {
        Ok(Self {
            function: Function::new("scalar_gate", geometry.into(), gate(channels)?),
        })
    }

    /// Applies the gate.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.function.apply(x, None)
    }
}
