//! The block of a transformer.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::bound::{Layer, Needs};
use super::{BlockOptions, Call, Channels, Geometry, Scope, Tokens};
use crate::Error;

/// `x + attention(norm(x))`, then `x + perceptron(norm(x))`.
///
/// The perceptron begins with a [`GeometricBilinear`](super::GeometricBilinear). Each other layer is a
/// [`ScalarGate`](super::ScalarGate) and an [`EquiLinear`](super::EquiLinear), and so is the first one without
/// `product` in the geometry.
///
/// Parameters: a [`SelfAttention`](super::SelfAttention) under `attention`; the layers of the perceptron under
/// `mlp.layers.0`, `mlp.layers.2` and so on, where gates and dropout count, so that without `product` they begin at
/// `mlp.layers.1`; with `norm_gains` in the geometry, layers
/// [`EquiLayerNorm::with_gains`](super::EquiLayerNorm::with_gains) under `norm1` and `norm2`. The whole block is one
/// node of the graph.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct Block {
    layer: Layer,
}

impl Block {
    /// A block of GATr of so many channels.
    ///
    /// # Errors
    /// [`Error::Option`] for an attention without heads, a perceptron without layers or channels, and a number that is
    /// not a probability; the errors of the builder.
    pub fn new(
        channels: Channels,
        options: impl Into<BlockOptions>,
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
        options: impl Into<BlockOptions>,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let (geometry, options) = (geometry.into(), options.into());
        let needs = Needs {
            extra: options.attention.extra,
            joins: geometry.has_joins(),
            heads: options.attention.heads,
            ..Needs::between(channels, channels)
        };
        let layer = Layer::new("block", geometry, needs, move |layers, given| {
            layers.block("", given.tokens, channels, &options, &given.beside)
        });
        Ok(Self {
            layer: layer.bound(&vb)?,
        })
    }

    /// Applies the block. `reference` is that of joins, `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        self.forward_within(x, Some(reference), &Scope::Sample)
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
        self.call(x, &Call::within(reference, scope))
    }

    /// Applies the block with all that a call may have.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`]; extra tokens of other channels than the options say; random numbers on another device.
    pub fn call(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.layer.apply(x, call)
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
        self.recomputed(x, &Call::within(reference, scope))
    }

    /// Does the same as [`Self::call`] and keeps only its inputs, as [`Self::recomputed_within`]. The second run
    /// drops what the first one dropped.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn recomputed(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.layer.recomputed(x, call)
    }
}
