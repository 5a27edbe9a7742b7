//! The invariant norm, and the gated nonlinearity.

use candle_core::Result;

use super::part::{Function, Part};
use super::{Channels, Tokens};
use crate::Error;
use crate::op::transformer::gate::Gated;
use crate::op::transformer::norm::Norm;
use crate::op::transformer::stage::Stage;

pub(super) fn norm(channels: Channels) -> std::result::Result<Part, Error> {
    Ok(Part::plain(Stage::Norm(Norm::new(channels)?)))
}

pub(super) fn gate(channels: Channels) -> std::result::Result<Part, Error> {
    Ok(Part::plain(Stage::Gated(Gated::new(channels)?)))
}

/// `x / sqrt(max(mean over channels of <x, x>, 0.01))`, and a layer norm of the scalars. Neither has parameters.
///
/// `<x, x>` is the sum of the squares of the blades without the null vector. Scalars have the eps `1e-5`.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct EquiLayerNorm {
    function: Function,
}

impl EquiLayerNorm {
    /// A norm of so many channels.
    ///
    /// # Errors
    /// The errors of the core.
    pub fn new(channels: Channels) -> std::result::Result<Self, Error> {
        Ok(Self {
            function: Function::new("equi_layer_norm", norm(channels)?),
        })
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
    /// A gate of so many channels.
    ///
    /// # Errors
    /// The errors of the core.
    pub fn new(channels: Channels) -> std::result::Result<Self, Error> {
        Ok(Self {
            function: Function::new("scalar_gate", gate(channels)?),
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
