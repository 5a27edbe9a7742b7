//! The block of a transformer.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::attention::{AttentionOptions, attention};
use super::bilinear::bilinear;
use super::part::{Function, linear};
use super::pointwise::{gate, norm};
use super::{Channels, Initialization, Tokens};
use crate::Error;

/// Hidden channels of the perceptron for each channel.
const WIDENING: usize = 2;

/// `x + attention(norm(x))`, then `x + perceptron(norm(x))`.
///
/// The perceptron is a [`GeometricBilinear`](super::GeometricBilinear) to twice the channels, a [`ScalarGate`](super::ScalarGate) and an
/// [`EquiLinear`](super::EquiLinear).
///
/// Parameters: those of [`SelfAttention`](super::SelfAttention) under `attention`, of the perceptron under `mlp.layers.0` and `mlp.layers.2`.
/// On the CPU the whole block is one node of the graph.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct Block {
    function: Function,
}

impl Block {
    /// A block of so many channels.
    ///
    /// # Errors
    /// [`Error::Option`] for an attention without heads, and the errors of the builder.
    pub fn new(
        channels: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let hidden = channels.times(WIDENING);
        let attended = norm(channels)?.then(attention(channels, options, &vb.pp("attention"))?);
        let layers = vb.pp("mlp.layers");
        let transformed = norm(channels)?
            .then(bilinear(channels, hidden, &layers.pp(0))?)
            .then(gate(hidden)?)
            .then(linear(
                hidden,
                channels,
                Initialization::Default,
                &layers.pp(2),
            )?);
        let part = attended.residual().then(transformed.residual());
        Ok(Self {
            function: Function::new("block", part),
        })
    }

    /// Applies the block. `reference` is that of joins, `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        self.function.apply(x, Some(reference))
    }
}
