//! The attention of a block, between projections.

use super::layers::Layers;
use super::{Ends, Transformer, at_least_one};
use crate::tokens::{Attention, Channels, Gains, Linear, Reinserted, Rotary, Step};
use crate::{Error, Value};

/// Options of the attention of a [`Transformer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// The number of heads. Default: 8.
    pub heads: usize,
    /// All heads together have `ratio` times the channels of the input. A head has at least one multivector channel, and four scalar channels if
    /// the input has scalars. Default: 2.
    pub ratio: usize,
    /// Whether all heads share keys and values, as by default.
    pub multi_query: bool,
    /// The base of rotary positions, 4096 in published GATr; `None` for no positions, the default. The position of an item turns the scalars of its
    /// query and its key, so heads have an even number of scalars, at least 8. For geometries without `head_norm`.
    pub rotary: Option<u32>,
    /// Whether each head has a factor, `head_scale` `[heads]`. Default: no.
    pub head_scale: bool,
    /// The probability of dropout of grades on the output.
    pub dropout: Option<f64>,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self {
            heads: 8,
            ratio: 2,
            multi_query: true,
            rotary: None,
            head_scale: false,
            dropout: None,
        }
    }
}

impl AttentionOptions {
    pub(super) fn check(&self) -> Result<(), Error> {
        at_least_one("heads", self.heads)?;
        at_least_one("ratio", self.ratio)?;
        match self.rotary {
            Some(base) => at_least_one("the base of rotary positions", base as usize),
            None => Ok(()),
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
}

impl Transformer {
    /// Attention of normalised tokens, with its projections.
    pub(super) fn attend(
        &self,
        layers: &mut Layers,
        prefix: &str,
        x: Value,
        ends: &Ends,
    ) -> Result<Value, Error> {
        let AttentionOptions {
            heads, multi_query, ..
        } = self.attention;
        let head = self.attention.head(self.hidden);
        let attention = Attention::new(self.geometry, heads, head, multi_query);
        let mut projected = self.projected(layers, prefix, x, (&attention, ends))?;
        if let Some(base) = self.attention.rotary {
            let step = Step::Rotary(Rotary::new(&attention, base));
            projected = layers.network.step(step, &[projected])?;
        }
        let attended = attended(layers, prefix, attention, [Some(projected), ends.mask])?;
        let all = head.times(heads);
        let scaled = match self.attention.head_scale {
            true => self.scaled(layers, prefix, attended, all)?,
            false => attended,
        };
        layers.linear_to(&format!("{prefix}.out_linear"), scaled, [all, self.hidden])
    }

    /// Queries, keys and values side by side.
    fn projected(
        &self,
        layers: &mut Layers,
        prefix: &str,
        x: Value,
        (attention, ends): (&Attention, &Ends),
    ) -> Result<Value, Error> {
        let named = |name: &str| format!("{prefix}.qkv_module.{name}");
        let seen = self.hidden.and(self.extra);
        let wide = match ends.extra {
            Some(extra) => beside(layers, [x, extra], [self.hidden, self.extra])?,
            None => x,
        };
        let [query, key, value] = attention.parts();
        if !self.attention.multi_query {
            let step = self.projection(seen, vec![query.and(key).and(value)])?;
            return layers.linear(&[named("in_linear")], step, wide);
        }
        let names = ["q_linear", "k_linear", "v_linear"].map(named);
        if ends.extra.is_none() {
            let step = self.projection(seen, vec![query, key, value])?;
            return layers.linear(&names, step, x);
        }
        // Values do not see the extra channels.
        let step = self.projection(seen, vec![query, key])?;
        let queries = layers.linear(&names[..2], step, wide)?;
        let step = self.projection(self.hidden, vec![value])?;
        let values = layers.linear(&names[2..], step, x)?;
        beside(layers, [queries, values], [query.and(key), value])
    }

    fn projection(&self, input: Channels, layers: Vec<Channels>) -> Result<Linear, Error> {
        let step = Linear::new(self.geometry, input, layers)?;
        Ok(match self.geometry.attention_bias {
            true => step,
            false => step.without_bias(),
        })
    }

    /// Tokens of heads times a factor of each head.
    fn scaled(
        &self,
        layers: &mut Layers,
        prefix: &str,
        x: Value,
        all: Channels,
    ) -> Result<Value, Error> {
        let step = Gains::of_heads(self.geometry, all, self.attention.heads);
        let shapes = step.shapes().into_iter();
        let named: Vec<_> = shapes
            .map(|shape| (format!("{prefix}.head_scale"), shape))
            .collect();
        let gains = layers.parameters(&named, &[0])?;
        layers.network.step(Step::Gains(step), &[x, gains])
    }
}

/// The channels of two tokens side by side.
fn beside(
    layers: &mut Layers,
    values: [Value; 2],
    [own, extra]: [Channels; 2],
) -> Result<Value, Error> {
    let step = Reinserted::new(layers.geometry.blades(), own, extra);
    layers.network.step(Step::Reinserted(step), &values)
}

/// Attention of queries, keys and values, with a mask if there is one.
fn attended(
    layers: &mut Layers,
    prefix: &str,
    attention: Attention,
    given: [Option<Value>; 2],
) -> Result<Value, Error> {
    let attention = match given[1] {
        Some(_) => attention.masked(),
        None => attention,
    };
    let mut inputs: Vec<Value> = given.into_iter().flatten().collect();
    if let Some(shape) = attention.shapes().first() {
        let name = format!("{prefix}.attention.log_weights");
        inputs.push(layers.network.parameter(&name, shape));
    }
    layers.network.step(Step::Attention(attention), &inputs)
}
