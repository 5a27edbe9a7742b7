//! Self-attention.

use candle_core::Result;
use candle_nn::{Init, VarBuilder};

use super::part::{Function, Part, linear, linear_parameters};
use super::{Channels, Initialization, Tokens};
use crate::Error;
use crate::op::transformer::attention::Attention;
use crate::op::transformer::linear::Linear;
use crate::op::transformer::stage::Stage;

/// Options of [`SelfAttention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionOptions {
    /// The heads.
    pub heads: usize,
    /// All heads together have `ratio` times the channels of the input, each at least one multivector and four scalars.
    pub ratio: usize,
    /// Whether all heads share keys and values.
    pub multi_query: bool,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self {
            heads: 8,
            ratio: 2,
            multi_query: true,
        }
    }
}

impl AttentionOptions {
    /// The channels of a head.
    fn head(&self, channels: Channels) -> Channels {
        let share = |channels: usize, least: usize| (self.ratio * channels / self.heads).max(least);
        let scalars = match channels.scalars {
            0 => 0,
            scalars => share(scalars, 4),
        };
        Channels::new(share(channels.multivectors, 1), scalars)
    }

    fn check(&self) -> std::result::Result<(), Error> {
        for (option, got) in [("heads", self.heads), ("ratio", self.ratio)] {
            if got == 0 {
                return Err(Error::Option {
                    option,
                    expected: "a number from 1 up",
                    got: 0.0,
                });
            }
        }
        Ok(())
    }
}

/// The stages of the layer.
pub(super) fn attention(
    channels: Channels,
    options: AttentionOptions,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    options.check()?;
    let head = options.head(channels);
    let attention = Attention::new(options.heads, head, options.multi_query);
    let parts = attention.parts();
    let projections = vb.pp("qkv_module");
    let (layers, names): (Vec<Channels>, &[&str]) = match options.multi_query {
        true => (parts.into(), &["q_linear", "k_linear", "v_linear"]),
        false => (vec![parts[0].times(parts.len())], &["in_linear"]),
    };
    let mut parameters = Vec::new();
    for (name, &output) in names.iter().zip(&layers) {
        let vb = projections.pp(name);
        let made = linear_parameters(channels, output, Initialization::Default, &vb)?;
        parameters.extend(made);
    }
    let shape = (options.heads, 1, head.multivectors);
    let vb_weights = vb.pp("attention");
    parameters.push(vb_weights.get_with_hints(shape, "log_weights", Init::Const(0.0))?);
    let part = Part {
        stages: vec![
            Stage::Linear(Linear::new(channels, layers)?),
            Stage::Attention(attention),
        ],
        parameters,
    };
    let all = head.times(options.heads);
    let out = linear(all, channels, Initialization::Small, &vb.pp("out_linear"))?;
    Ok(part.then(out))
}

/// Multi-head attention over the items of each sample.
///
/// ```text
/// logit = (Σ over channels <q, k> - exp(log_weights) |distance of points|^2  +  q_s k_s) / sqrt(features)
/// ```
///
/// `<q, k>` is the sum over blades without the null vector, less `e1 e2 e3`, the weight of a point. The distance of points `(p, w)` is that of
/// `w p / (w^2 + 0.001)`, each times the other's `w^2 / (w^2 + 0.001)`. There is no mask. On the CPU no matrix of all scores is made.
///
/// Parameters: those of [`EquiLinear`](super::EquiLinear) under `qkv_module.q_linear`, `.k_linear` and `.v_linear`, or `qkv_module.in_linear`
/// without `multi_query`, and `out_linear`; `attention.log_weights` `[heads, 1, channels of a head]`, which starts at 0.
///
/// Source: GATr (arXiv 2305.18415, section 3 and appendix A).
#[derive(Clone, Debug)]
pub struct SelfAttention {
    function: Function,
}

impl SelfAttention {
    /// A layer for so many channels.
    ///
    /// # Errors
    /// [`Error::Option`] for no head or a ratio of 0, and the errors of the builder.
    pub fn new(
        channels: Channels,
        options: AttentionOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Ok(Self {
            function: Function::new("self_attention", attention(channels, options, &vb)?),
        })
    }

    /// Applies the layer.
    ///
    /// # Errors
    /// Tokens of other channels.
    pub fn forward(&self, x: &Tokens) -> Result<Tokens> {
        self.function.apply(x, None)
    }
}
