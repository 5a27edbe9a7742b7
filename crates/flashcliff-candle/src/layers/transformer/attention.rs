//! Self-attention.

use candle_core::Result;
use candle_nn::VarBuilder;

use super::bound::{Layer, Needs};
use super::{AttentionOptions, Call, Channels, Geometry, Scope, Tokens};
use crate::Error;

/// Multi-head attention over the items of each sample.
///
/// ```text
/// logit = (Σ over channels <q, k> - exp(log_weights) |distance of points|^2  +  q_s k_s) / sqrt(features)
/// ```
///
/// `<q, k>` is the invariant inner product. Only geometries with `distances`, such as GATr's, have the term with
/// distances; their inner product leaves out the weights of points. The squared distance of points with coordinates
/// `p` and weights `w` is `|p'_q w'_k - p'_k w'_q|^2`, where `p' = w p / (w^2 + 0.001)` and
/// `w' = w^2 / (w^2 + 0.001)`. With `head_norm` in the geometry, as in L-GATr, queries, keys and values are
/// normalised first.
///
/// All items of a sample see each other; [`Self::forward_within`] has masks and ragged batches.
///
/// The CPU keeps no matrix of all scores. A GPU keeps none for tokens of `f32` without a mask if heads have at most
/// 96 features; for others it does, for a ragged batch of all its items.
///
/// Parameters: linear maps ([`EquiLinear`](super::EquiLinear)) under `qkv_module.q_linear`, `.k_linear` and
/// `.v_linear`, or `qkv_module.in_linear` without `multi_query`, and `out_linear`; with distances
/// `attention.log_weights` `[heads, 1, channels of a head]`, which starts at 0; with that option `head_scale`
/// `[heads]`, which starts at 1.
///
/// Sources: GATr (arXiv 2305.18415, section 3 and appendix A), L-GATr (arXiv 2405.14806, section 3).
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::init::Parameters;
/// use flashcliff_candle::layers::transformer::{
///     AttentionOptions, Channels, Scope, SelfAttention, Sequences, Tokens,
/// };
///
/// let channels = Channels::new(4, 8);
/// let parameters = Parameters::seeded(1);
/// let vb = parameters.builder(DType::F32, &Device::Cpu);
/// let layer = SelfAttention::new(channels, AttentionOptions::default(), vb)?;
///
/// // Seven items: sequences of three and of four.
/// let x = Tensor::ones((1, 7, channels.width()), DType::F32, &Device::Cpu)?;
/// let x = Tokens::from_packed(x, channels)?;
/// let scope = Scope::Within(Sequences::new(&[0, 3, 7])?);
/// assert_eq!(layer.forward_within(&x, &scope)?.packed().dims(), [1, 7, 72]);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SelfAttention {
    layer: Layer,
}

impl SelfAttention {
    /// A layer of GATr for so many channels.
    ///
    /// # Errors
    /// [`Error::Option`] for no head or a ratio of 0, and the errors of the builder.
    pub fn new(
        channels: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, channels, options, vb)
    }

    /// A layer over a geometry, or an algebra.
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
        let needs = Needs {
            extra: options.extra,
            heads: options.heads,
            ..Needs::between(channels, channels)
        };
        let layer = Layer::new("self_attention", geometry, needs, move |layers, given| {
            layers.self_attention("", given.tokens, channels, &options, &given.beside)
        });
        Ok(Self {
            layer: layer.bound(&vb)?,
        })
    }

    /// Applies the layer.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.call(x, &Call::default())
    }

    /// Applies the layer to items that attend within a scope.
    ///
    /// # Errors
    /// Tokens of other channels; a mask of another shape ([`Error::Shape`]), or of another type; sequences of other
    /// tokens ([`Error::Offsets`]); a scope of two sets ([`Error::Scope`]).
    pub fn forward_within(&self, x: &Tokens, scope: &Scope) -> Result<Tokens> {
        self.call(x, &Call::within(None, scope))
    }

    /// Applies the layer with all that a call may have; it reads no reference.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`]; extra tokens of other channels than the options say; random numbers on another device.
    pub fn call(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.layer.apply(x, call)
    }
}
