//! The block of a transformer.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::attention::{AttentionOptions, attention};
use super::bilinear::bilinear;
use super::part::{Function, linear};
use super::pointwise::{block_norm, gate};
use super::{Channels, Geometry, Initialization, Scope, Tokens};
use crate::Error;

/// Hidden channels of the perceptron for each channel.
const WIDENING: usize = 2;

/// `x + attention(norm(x))`, then `x + perceptron(norm(x))`.
///
/// The perceptron is a [`GeometricBilinear`](super::GeometricBilinear) to twice the channels, a [`ScalarGate`](super::ScalarGate) and an
/// [`EquiLinear`](super::EquiLinear).
///
/// Parameters: those of [`SelfAttention`](super::SelfAttention) under `attention`, of the perceptron under `mlp.layers.0` and `mlp.layers.2`; with
/// `norm_gains` in the geometry those of [`EquiLayerNorm::with_gains`](super::EquiLayerNorm::with_gains) under `norm1` and `norm2`.
/// On the CPU the whole block is one node of the graph.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct Block {
    function: Function,
}

impl Block {
    /// A block of GATr of so many channels.
    ///
    /// # Errors
    /// [`Error::Option`] for an attention without heads, and the errors of the builder.
    pub fn new(
        channels: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, channels, options, vb)
    }

    /// A block over a geometry, or an algebra.
    ///
    /// # Errors
    /// [`Error::Geometry`] for an algebra that lacks what the geometry needs, and the errors of [`Self::new`].
    pub fn over(
        geometry: impl Into<Geometry>,
        channels: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let geometry = geometry.into();
        let hidden = channels.times(WIDENING);
        let vb_attention = vb.pp("attention");
        let attended = block_norm(geometry, channels, &vb.pp("norm1"))?.then(attention(
            geometry,
            channels,
            options,
            &vb_attention,
        )?);
        let layers = vb.pp("mlp.layers");
        let transformed = block_norm(geometry, channels, &vb.pp("norm2"))?
            .then(bilinear(geometry, channels, hidden, &layers.pp(0))?)
            .then(gate(geometry, hidden)?)
            .then(linear(
                geometry,
                hidden,
                channels,
                Initialization::Default,
                &layers.pp(2),
            )?);
        let part = attended.residual().then(transformed.residual());
        Ok(Self {
            function: Function::new("block", geometry, part),
        })
    }

    /// Applies the block. `reference` is that of joins, `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        self.function.apply(x, Some(reference))
    }

    /// Applies the block to items that attend within a scope. Geometries without joins need no reference.
    ///
    /// # Errors
    /// The errors of [`Self::forward`], and a scope that does not fit the tokens.
    pub fn forward_within(
        &self,
        x: &Tokens,
        reference: Option<&Tensor>,
        scope: &Scope,
    ) -> Result<Tokens> {
        self.function.apply_within(x, reference, scope)
    }

    /// Does the same as [`Self::forward_within`] and keeps only its inputs: the backward pass runs the block again, see
    /// [`op::recomputed`](crate::op::recomputed). Gradients are the same bit for bit.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`].
    pub fn recomputed_within(
        &self,
        x: &Tokens,
        reference: Option<&Tensor>,
        scope: &Scope,
    ) -> Result<Tokens> {
        self.function.recomputed_within(x, reference, scope)
    }
}
