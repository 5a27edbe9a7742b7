//! The block of a transformer.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::attention::{AttentionOptions, attention};
use super::bilinear::bilinear;
use super::part::{Function, Part, linear};
use super::pointwise::{block_norm, dropout, gate};
use super::{Call, Channels, Geometry, Initialization, Scope, Tokens};
use crate::Error;

/// Options of a [`Block`]. [`AttentionOptions`] convert to them, with the defaults of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockOptions {
    /// The attention. Default: [`AttentionOptions::default`].
    pub attention: AttentionOptions,
    /// Hidden channels of the perceptron for each channel. Default: 2.
    pub mlp_ratio: usize,
    /// Layers of the perceptron, at least 1. Default: 2.
    pub mlp_layers: usize,
    /// The probability of [`GradeDropout`](super::GradeDropout) behind each layer of the perceptron, and behind attention unless its own options have
    /// one. Default: `None`.
    pub dropout: Option<f64>,
}

impl From<AttentionOptions> for BlockOptions {
    fn from(attention: AttentionOptions) -> Self {
        Self {
            attention,
            ..Self::default()
        }
    }
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            attention: AttentionOptions::default(),
            mlp_ratio: 2,
            mlp_layers: 2,
            dropout: None,
        }
    }
}

/// `x + attention(norm(x))`, then `x + perceptron(norm(x))`.
///
/// The perceptron begins with a [`GeometricBilinear`](super::GeometricBilinear). Each other layer is a [`ScalarGate`](super::ScalarGate) and an
/// [`EquiLinear`](super::EquiLinear), and so is the first one without `product` in the geometry.
///
/// Parameters: those of [`SelfAttention`](super::SelfAttention) under `attention`, of the perceptron under `mlp.layers.0`, `mlp.layers.2` and so on,
/// where gates and dropout count, so that without `product` they begin at `mlp.layers.1`; with `norm_gains` in the geometry those of
/// [`EquiLayerNorm::with_gains`](super::EquiLayerNorm::with_gains) under `norm1` and `norm2`. The whole block is one node of the graph.
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
    /// [`Error::Option`] for an attention without heads, a perceptron without layers or channels, and what is no probability; the errors of the
    /// builder.
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
        let of_attention = AttentionOptions {
            dropout: options.attention.dropout.or(options.dropout),
            ..options.attention
        };
        let vb_attention = vb.pp("attention");
        let attended = attention(geometry, channels, of_attention, 0, &vb_attention)?;
        let attended = block_norm(geometry, channels, &vb.pp("norm1"))?.then(attended);
        let transformed = perceptron(geometry, channels, options, &vb.pp("mlp.layers"))?;
        let transformed = block_norm(geometry, channels, &vb.pp("norm2"))?.then(transformed);
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
        let call = Call {
            reference,
            scope,
            ..Call::default()
        };
        self.call(x, &call)
    }

    /// Applies the block with all that a call may have.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`]; extra tokens of other channels than the options say; random numbers on another device.
    pub fn call(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.function.apply(x, call)
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
        let call = Call {
            reference,
            scope,
            ..Call::default()
        };
        self.recomputed(x, &call)
    }

    /// Does the same as [`Self::call`] and keeps only its inputs, as [`Self::recomputed_within`]. The second run drops what the first one dropped.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn recomputed(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.function.recomputed(x, call)
    }
}

/// The pieces of the perceptron. Dropout of its layers has the places from 1 on, behind that of attention.
fn perceptron(
    geometry: Geometry,
    channels: Channels,
    options: BlockOptions,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    let counts = [
        ("mlp_ratio", options.mlp_ratio),
        ("mlp_layers", options.mlp_layers),
    ];
    for (option, got) in counts {
        if got == 0 {
            return Err(Error::Option {
                option,
                expected: "a number from 1 up",
                got: 0.0,
            });
        }
    }
    let hidden = channels.times(options.mlp_ratio);
    // The index of a module in the state dict.
    let (mut part, mut module, mut input) = (Part::default(), 0, channels);
    for layer in 0..options.mlp_layers {
        let output = match layer + 1 == options.mlp_layers {
            true => channels,
            false => hidden,
        };
        if layer == 0 && geometry.product {
            part = part.then(bilinear(geometry, input, output, &vb.pp(module))?);
        } else {
            let (start, vb) = (Initialization::Default, vb.pp(module + 1));
            let linear = linear(geometry, input, output, start, &vb)?;
            part = part.then(gate(geometry, input)?).then(linear);
            module += 1;
        }
        let place = layer as u64 + 1;
        part = part.then(dropout(geometry, output, options.dropout, place)?);
        module += 1 + usize::from(options.dropout.is_some());
        input = output;
    }
    Ok(part)
}
