//! Self-attention, and the options of attention.

use candle_core::{Result, Tensor};
use candle_nn::{Init, VarBuilder};
use flashcliff_network::tokens::{Attention, Gains, Linear, Reinserted, Rotary, Step};

use super::part::{Function, Part, linear, linear_parameters};
use super::pointwise::dropout;
use super::{Call, Channels, Geometry, Initialization, Scope, Tokens};
use crate::Error;

/// Options of [`SelfAttention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// The number of heads. Default: 8.
    pub heads: usize,
    /// All heads together have `ratio` times the channels of the input. A head has at least one multivector channel, and four scalar channels if
    /// the input has scalars. Default: 2.
    pub ratio: usize,
    /// Whether all heads share keys and values, as by default.
    pub multi_query: bool,
    /// The base of rotary positions, 4096 in published GATr; `None` for no positions, the default. The position of an item turns the scalars of its query and its
    /// key, so heads have an even number of scalars, at least 8. It counts the items of a sample, in a ragged batch those of all sequences. For
    /// self-attention, and geometries without `head_norm`.
    pub rotary: Option<u32>,
    /// Whether each head has a factor, `head_scale` `[heads]`, which starts at 1. Default: no.
    pub head_scale: bool,
    /// The channels of extra tokens, which a call brings as [`Call::extra`]. The projections to queries and keys see them beside the channels of the
    /// input; without `multi_query` the projection to values does too. Extra scalars need an input with scalars. For self-attention. Default: none.
    pub extra: Channels,
    /// The probability of [`GradeDropout`](super::GradeDropout) on the output.
    pub dropout: Option<f64>,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self::PUBLISHED
    }
}

impl AttentionOptions {
    /// The options of the published network.
    pub(crate) const PUBLISHED: Self = Self {
        heads: 8,
        ratio: 2,
        multi_query: true,
        rotary: None,
        head_scale: false,
        extra: Channels::new(0, 0),
        dropout: None,
    };

    /// The channels of a head.
    pub(super) fn head(&self, channels: Channels) -> Channels {
        let share = |channels: usize, least: usize| (self.ratio * channels / self.heads).max(least);
        let scalars = match channels.scalars {
            0 => 0,
            scalars => share(scalars, 4),
        };
        let scalars = match self.rotary {
            None => scalars,
            Some(_) => scalars.next_multiple_of(2).max(8),
        };
        Channels::new(share(channels.multivectors, 1), scalars)
    }

    /// Checks the options for tokens of so many channels.
    pub(super) fn check(&self, channels: Channels) -> std::result::Result<(), Error> {
        if channels.scalars == 0 && self.extra.scalars > 0 {
            return Err(Error::Option {
                option: "extra scalars of attention",
                expected: "0, because its tokens have no scalars",
                got: self.extra.scalars as f64,
            });
        }
        for (option, got) in [("heads", self.heads), ("ratio", self.ratio)] {
            if got == 0 {
                return Err(Error::Option {
                    option,
                    expected: "a number from 1 up",
                    got: 0.0,
                });
            }
        }
        match self.rotary {
            Some(0) => Err(Error::Option {
                option: "the base of rotary positions",
                expected: "a number from 1 up",
                got: 0.0,
            }),
            _ => Ok(()),
        }
    }

    /// The turn between queries, keys and values and their attention, if there is one.
    fn rotary(
        &self,
        attention: &Attention,
        geometry: Geometry,
    ) -> Option<std::result::Result<Step, Error>> {
        let base = self.rotary?;
        Some(match geometry.head_norm {
            false => Ok(Step::Rotary(Rotary::new(attention, base))),
            // The norm of a head comes first in published networks, and it is a part of attention here.
            true => Err(Error::Geometry {
                choice: "rotary positions",
                expected: "a geometry without head_norm",
                got: format!("one with it, over {}", geometry.algebra.name()),
            }),
        })
    }
}

/// The pieces of the layer. `place` is that of its dropout.
pub(super) fn attention(
    geometry: Geometry,
    channels: Channels,
    options: AttentionOptions,
    place: u64,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    options.check(channels)?;
    let head = options.head(channels);
    let attention = Attention::new(geometry, options.heads, head, options.multi_query);
    let rotary = options.rotary(&attention, geometry).transpose()?;
    let parts = attention.parts();
    let projections = vb.pp("qkv_module");
    let (layers, names): (Vec<Channels>, &[&str]) = match options.multi_query {
        true => (parts.into(), &["q_linear", "k_linear", "v_linear"]),
        false => (vec![parts[0].times(parts.len())], &["in_linear"]),
    };
    let seen = channels.and(options.extra);
    // Values do not see extra channels, if they have a layer of their own.
    let count = match (seen != channels, options.multi_query) {
        (true, true) => layers.len() - 1,
        _ => layers.len(),
    };
    let projected = |input, layers: &[Channels], names: &[&str]| {
        let mut parameters = Vec::new();
        for (name, &output) in names.iter().zip(layers) {
            let (start, biased) = (Initialization::Default, geometry.attention_bias);
            let vb = projections.pp(name);
            parameters.extend(linear_parameters(
                geometry, input, output, start, biased, &vb,
            )?);
        }
        let linear = Linear::new(geometry, input, layers.to_vec())?;
        Ok::<_, Error>(Part::linear(linear, &parameters))
    };
    let (of_seen, others) = layers.split_at(count);
    let (seen_names, other_names) = names.split_at(count);
    let mut part = projected(seen, of_seen, seen_names)?;
    if seen != channels {
        let reinserted = Reinserted::new(geometry.blades(), channels, options.extra);
        part = Part::plain(Step::Reinserted(reinserted)).then(part);
    }
    if let [values] = others {
        let queries_and_keys = of_seen
            .iter()
            .fold(Channels::default(), |all, &own| all.and(own));
        let beside = Reinserted::new(geometry.blades(), queries_and_keys, *values);
        let values = projected(channels, others, other_names)?;
        part = part.beside(values, Step::Reinserted(beside));
    }
    part = rotary.map(Part::plain).into_iter().fold(part, Part::then);
    let log_weights = log_weights(geometry, options, head, vb)?;
    let attention = Part::step(
        Step::Attention(attention),
        log_weights.into_iter().collect(),
    );
    let out = finish(geometry, head, channels, options, place, vb)?;
    Ok(part.then(attention).then(out))
}

/// The pieces behind attention: factors of heads, the linear layer to so many channels, and dropout.
pub(super) fn finish(
    geometry: Geometry,
    head: Channels,
    channels: Channels,
    options: AttentionOptions,
    place: u64,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    let all = head.times(options.heads);
    let mut part = Part::default();
    if options.head_scale {
        let scale = vb.get_with_hints(options.heads, "head_scale", Init::Const(1.0))?;
        let gains = Gains::of_heads(geometry, all, options.heads);
        part = part.then(Part::step(Step::Gains(gains), vec![scale]));
    }
    let vb = vb.pp("out_linear");
    let out = linear(geometry, all, channels, Initialization::Small, &vb)?;
    Ok(part
        .then(out)
        .then(dropout(geometry, channels, options.dropout, place)?))
}

/// The logarithms of the weights of distances, if attention sees any.
pub(super) fn log_weights(
    geometry: Geometry,
    options: AttentionOptions,
    head: Channels,
    vb: &VarBuilder,
) -> Result<Option<Tensor>> {
    let shape = (options.heads, 1, head.multivectors);
    let make = || {
        let vb = vb.pp("attention");
        vb.get_with_hints(shape, "log_weights", Init::Const(0.0))
    };
    geometry.distances.then(make).transpose()
}

/// Multi-head attention over the items of each sample.
///
/// ```text
/// logit = (Σ over channels <q, k> - exp(log_weights) |distance of points|^2  +  q_s k_s) / sqrt(features)
/// ```
///
/// `<q, k>` is the invariant inner product. Only geometries with `distances`, such as GATr's, have the term with distances; their inner product leaves
/// out the weights of points. The squared distance of points with coordinates `p` and weights `w` is `|p'_q w'_k - p'_k w'_q|^2`, where
/// `p' = w p / (w^2 + 0.001)` and `w' = w^2 / (w^2 + 0.001)`. With `head_norm` in the geometry, as in L-GATr, queries, keys and values are normalised
/// first.
///
/// All items of a sample see each other; [`Self::forward_within`] has masks and ragged batches.
///
/// The CPU keeps no matrix of all scores. A GPU keeps none for tokens of `f32` without a mask if heads have at most 96 features; for others it does, for
/// a ragged batch of all its items.
///
/// Parameters: those of [`EquiLinear`](super::EquiLinear) under `qkv_module.q_linear`, `.k_linear` and `.v_linear`, or `qkv_module.in_linear`
/// without `multi_query`, and `out_linear`; with distances `attention.log_weights` `[heads, 1, channels of a head]`, which starts at 0; with
/// that option `head_scale` `[heads]`, which starts at 1.
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
    function: Function,
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
        let part = attention(geometry, channels, options, 0, &vb)?;
        Ok(Self {
            function: Function::new("self_attention", geometry, part),
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
        self.call(
            x,
            &Call {
                scope,
                ..Call::default()
            },
        )
    }

    /// Applies the layer with all that a call may have; it reads no reference.
    ///
    /// # Errors
    /// The errors of [`Self::forward_within`]; extra tokens of other channels than the options say; random numbers on another device.
    pub fn call(&self, x: &Tokens, call: &Call) -> Result<Tokens> {
        self.function.apply(x, call)
    }
}
