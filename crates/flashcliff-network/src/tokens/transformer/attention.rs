//! Attention with its projections, within a set and to another one.

use super::at_least_one;
use super::layers::{Beside, Layers, under};
use super::start::{Initialization, Start};
use crate::tokens::{Attention, Channels, Gains, Geometry, Linear, Reinserted, Rotary, Step};
use crate::{Error, Value};

/// Options of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// The number of heads. Default: 8.
    pub heads: usize,
    /// All heads together have `ratio` times the channels of the input. A head has at least one multivector channel,
    /// and four scalar channels if the input has scalars. Default: 2.
    pub ratio: usize,
    /// Whether all heads share keys and values, as by default.
    pub multi_query: bool,
    /// The base of rotary positions, 4096 in published GATr; `None` for no positions, the default. The position of an
    /// item turns the scalars of its query and its key, so heads have an even number of scalars, at least 8. It counts
    /// the items of a sample, and in a ragged batch the items of all sequences. For attention within a set, and
    /// geometries without `head_norm`.
    pub rotary: Option<u32>,
    /// Whether each head has a factor, `head_scale` `[heads]`, which starts at 1. Default: no.
    pub head_scale: bool,
    /// The channels of further tokens of the same items. The projections to queries and keys see them beside the
    /// channels of the input; without `multi_query` the projection to values does too. GATr reinserts channels of its
    /// input so. Extra scalars need an input with scalars. For attention within a set. Default: none.
    pub extra: Channels,
    /// The probability of dropout of grades on the output.
    pub dropout: Option<f64>,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self::PUBLISHED
    }
}

impl AttentionOptions {
    /// The options of the published network.
    pub const PUBLISHED: Self = Self {
        heads: 8,
        ratio: 2,
        multi_query: true,
        rotary: None,
        head_scale: false,
        extra: Channels::new(0, 0),
        dropout: None,
    };

    /// Checks the options for tokens of so many channels.
    pub(super) fn check(&self, geometry: Geometry, channels: Channels) -> Result<(), Error> {
        if channels.scalars == 0 && self.extra.scalars > 0 {
            return Err(Error::Option {
                option: "extra scalars of attention",
                expected: "0, because its tokens have no scalars",
                got: self.extra.scalars as f64,
            });
        }
        channels.check("channels of attention")?;
        at_least_one("heads", self.heads)?;
        at_least_one("ratio", self.ratio)?;
        let Some(base) = self.rotary else {
            return Ok(());
        };
        at_least_one("the base of rotary positions", base as usize)?;
        match geometry.head_norm {
            false => Ok(()),
            // The norm of a head comes first in published networks, and it is a part of attention here.
            true => Err(Error::Geometry {
                choice: "rotary positions",
                expected: "a geometry without head_norm",
                got: format!("one with it, over {}", geometry.algebra.name()),
            }),
        }
    }

    /// Checks that the options are some of attention to another set.
    fn check_crossing(&self) -> Result<(), Error> {
        let extra = self.extra.multivectors.max(self.extra.scalars);
        let options = [
            ("extra channels of attention to another set", extra as f64),
            (
                "rotary positions of attention to another set",
                self.rotary.map_or(0.0, f64::from),
            ),
        ];
        match options.into_iter().find(|(_, got)| *got > 0.0) {
            None => Ok(()),
            Some((option, got)) => Err(Error::Option {
                option,
                expected: "none",
                got,
            }),
        }
    }

    /// The channels of a head.
    fn head(&self, channels: Channels) -> Channels {
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

    /// Attention of heads of tokens with so many channels.
    fn attention(&self, geometry: Geometry, channels: Channels) -> Attention {
        Attention::new(geometry, self.heads, self.head(channels), self.multi_query)
    }
}

impl Layers {
    /// Attention of the items of a set, with its projections. Its parameters are under `qkv_module`, `attention` and
    /// `out_linear`; `head_scale` is one.
    ///
    /// # Errors
    /// [`Error::Option`] for no head or a ratio of 0, and for what is not a probability; [`Error::Geometry`] for
    /// choices that the algebra does not have; [`Error::Shape`] for values that do not fit.
    pub fn self_attention(
        &mut self,
        prefix: &str,
        x: Value,
        channels: Channels,
        options: &AttentionOptions,
        beside: &Beside,
    ) -> Result<Value, Error> {
        options.check(self.geometry, channels)?;
        let attention = options.attention(self.geometry, channels);
        let mut projected = self.projected(prefix, x, (channels, options), beside.extra)?;
        if let Some(base) = options.rotary {
            let step = Step::Rotary(Rotary::new(&attention, base));
            projected = self.network.step(step, &[projected])?;
        }
        let channels = [attention.output(), channels];
        let attended = self.attended(prefix, attention, &[projected], beside.mask)?;
        self.finished(prefix, attended, channels, options)
    }

    /// Attention of the items `x` to the items of a context, with its projections. Heads have the sizes that follow
    /// from the channels of the context. Its parameters are under `q_linear`, `k_linear`, `v_linear`, `attention` and
    /// `out_linear`; `head_scale` is one.
    ///
    /// # Errors
    /// The errors of [`Self::self_attention`]; [`Error::Option`] for extra channels and rotary positions.
    pub fn cross_attention(
        &mut self,
        prefix: &str,
        [x, context]: [Value; 2],
        [channels, others]: [Channels; 2],
        options: &AttentionOptions,
        mask: Option<Value>,
    ) -> Result<Value, Error> {
        options.check_crossing()?;
        options.check(self.geometry, channels)?;
        let attention = options.attention(self.geometry, others);
        let [query, key, value] = attention.parts();
        let queries = self.projection(prefix, &["q_linear"], x, channels, vec![query])?;
        let names = ["k_linear", "v_linear"];
        let keys = self.projection(prefix, &names, context, others, vec![key, value])?;
        let channels = [attention.output(), channels];
        let attended = self.attended(prefix, attention.crossing(), &[queries, keys], mask)?;
        self.finished(prefix, attended, channels, options)
    }

    /// Queries, keys and values of a set side by side.
    fn projected(
        &mut self,
        prefix: &str,
        x: Value,
        (channels, options): (Channels, &AttentionOptions),
        extra: Option<Value>,
    ) -> Result<Value, Error> {
        let prefix = under(prefix, "qkv_module");
        let seen = channels.and(options.extra);
        let extra = extra.filter(|_| seen != channels);
        let wide = match extra {
            Some(extra) => self.beside([x, extra], [channels, options.extra])?,
            None => x,
        };
        let [query, key, value] = options.attention(self.geometry, channels).parts();
        if !options.multi_query {
            let all = vec![query.and(key).and(value)];
            return self.projection(&prefix, &["in_linear"], wide, seen, all);
        }
        let names = ["q_linear", "k_linear", "v_linear"];
        if extra.is_none() {
            return self.projection(&prefix, &names, x, seen, vec![query, key, value]);
        }
        // Values do not see the extra channels.
        let queries = self.projection(&prefix, &names[..2], wide, seen, vec![query, key])?;
        let values = self.projection(&prefix, &names[2..], x, channels, vec![value])?;
        self.beside([queries, values], [query.and(key), value])
    }

    /// Linear layers that share an input, with biases if the geometry says so.
    fn projection(
        &mut self,
        prefix: &str,
        names: &[&str],
        x: Value,
        input: Channels,
        layers: Vec<Channels>,
    ) -> Result<Value, Error> {
        let step = Linear::new(self.geometry, input, layers)?;
        let step = match self.geometry.attention_bias {
            true => step,
            false => step.without_bias(),
        };
        let named = names.iter();
        let named: Vec<_> = named
            .map(|name| (under(prefix, name), Initialization::Default))
            .collect();
        self.linears(&named, step, x)
    }

    /// The channels of two tokens side by side.
    fn beside(&mut self, values: [Value; 2], [own, others]: [Channels; 2]) -> Result<Value, Error> {
        let step = Reinserted::new(self.geometry.blades(), own, others);
        self.network.step(Step::Reinserted(step), &values)
    }

    /// Attention of queries, keys and values, with a mask if there is one. The logarithms of the weights of distances start at 0.
    fn attended(
        &mut self,
        prefix: &str,
        attention: Attention,
        projected: &[Value],
        mask: Option<Value>,
    ) -> Result<Value, Error> {
        let attention = match mask {
            Some(_) => attention.masked(),
            None => attention,
        };
        let mut inputs: Vec<Value> = projected.iter().copied().chain(mask).collect();
        let name = under(prefix, "attention.log_weights");
        for shape in attention.shapes() {
            inputs.push(self.parameter(&name, &shape, Start::Constant(0.0)));
        }
        self.network.step(Step::Attention(attention), &inputs)
    }

    /// The steps after attention: factors of heads, the linear layer to so many channels, and dropout.
    fn finished(
        &mut self,
        prefix: &str,
        mut x: Value,
        [all, channels]: [Channels; 2],
        options: &AttentionOptions,
    ) -> Result<Value, Error> {
        if options.head_scale {
            let step = Gains::of_heads(self.geometry, all, options.heads);
            let shapes = step.shapes().into_iter();
            let named = shapes.map(|shape| (under(prefix, "head_scale"), shape));
            let gains = self.gains(named.collect())?;
            x = self.network.step(Step::Gains(step), &[x, gains])?;
        }
        let (name, start) = (under(prefix, "out_linear"), Initialization::Small);
        let x = self.linear(&name, x, [all, channels], start)?;
        self.dropout(x, channels, options.dropout, 0)
    }
}
