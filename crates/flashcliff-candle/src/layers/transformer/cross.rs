//! Attention of the items of one set to the items of another.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::bound::{Layer, Needs};
use super::{AttentionOptions, Call, Channels, Geometry, Scope, Tokens};
use crate::Error;

/// Multi-head attention of the items of one set to the items of another, as [`SelfAttention`](super::SelfAttention) weighs them.
///
/// The sizes of heads follow from the channels of the other set, as in GATr. Both sets have the same number of
/// samples; their numbers of items may differ.
///
/// Parameters: linear maps ([`EquiLinear`](super::EquiLinear)) under `q_linear`, `k_linear`, `v_linear` and `out_linear`; with distances
/// `attention.log_weights` `[heads, 1, channels of a head]`, which starts at 0; with that option `head_scale` `[heads]`, which starts at 1.
///
/// Source: GATr (arXiv 2305.18415), the layer of its repository.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::init::Parameters;
/// use flashcliff_candle::layers::transformer::{
///     AttentionOptions, Channels, CrossAttention, Scope, Sequences, Tokens,
/// };
///
/// let (channels, others) = (Channels::new(2, 4), Channels::new(4, 8));
/// let parameters = Parameters::seeded(1);
/// let vb = parameters.builder(DType::F32, &Device::Cpu);
/// let layer = CrossAttention::new(channels, others, AttentionOptions::default(), vb)?;
///
/// // Two sequences of one and two queries, with three keys each.
/// let tokens = |items, channels: Channels| {
///     let x = Tensor::ones((1, items, channels.width()), DType::F32, &Device::Cpu)?;
///     Tokens::from_packed(x, channels)
/// };
/// let scope = Scope::Between(Sequences::new(&[0, 1, 3])?, Sequences::new(&[0, 3, 6])?);
/// let out = layer.forward_within(&tokens(3, channels)?, &tokens(6, others)?, &scope)?;
/// assert_eq!(out.channels(), channels);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CrossAttention {
    layer: Layer,
}

impl CrossAttention {
    /// A layer of GATr for queries of so many channels, and keys and values of others.
    ///
    /// # Errors
    /// [`Error::Option`] for no head or a ratio of 0, and the errors of the builder.
    pub fn new(
        channels: Channels,
        others: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, channels, others, options, vb)
    }

    /// A layer over a geometry, or an algebra.
    ///
    /// # Errors
    /// [`Error::Geometry`] for an algebra that lacks what the geometry needs, and the errors of [`Self::new`].
    pub fn over(
        geometry: impl Into<Geometry>,
        channels: Channels,
        others: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let geometry = geometry.into();
        let needs = Needs {
            context: Some(others),
            heads: options.heads,
            ..Needs::between(channels, channels)
        };
        let both = [channels, others];
        let layer = Layer::new("cross_attention", geometry, needs, move |layers, given| {
            let values = [given.tokens, given.context];
            layers.cross_attention("", values, both, &options, given.beside.mask)
        });
        Ok(Self {
            layer: layer.bound(&vb)?,
        })
    }

    /// Applies the layer: `x` attends to `others`.
    ///
    /// # Errors
    /// Tokens of other channels, and sets of different numbers of samples.
    pub fn forward(&self, x: &Tokens, others: &Tokens) -> Result<Tokens> {
        self.forward_within(x, others, &Scope::Sample)
    }

    /// Applies the layer to items that attend within a scope. A mask has the items of `x` as queries and the items of
    /// `others` as keys; ragged batches have [`Scope::Between`].
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; a mask of another shape ([`Error::Shape`]) or type; sequences of other tokens, or of different
    /// numbers ([`Error::Offsets`]); a scope of one set ([`Error::Scope`]).
    pub fn forward_within(&self, x: &Tokens, others: &Tokens, scope: &Scope) -> Result<Tokens> {
        self.call(x, others, &Call::within(None, scope))
    }

    /// Applies the layer with all that a call may have; it reads no reference and takes no extra tokens.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`]; random numbers on another device.
    pub fn call(&self, x: &Tokens, others: &Tokens, call: &Call) -> Result<Tokens> {
        self.layer.apply_across(x, Some(others), call)
    }
}
