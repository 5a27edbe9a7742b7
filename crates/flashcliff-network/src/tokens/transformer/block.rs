//! The block of a transformer, and its perceptron, which begins with products and joins if the geometry says so.

use super::at_least_one;
use super::attention::AttentionOptions;
use super::layers::{Beside, Layers, under};
use super::start::Initialization;
use crate::tokens::{Channels, Geometry, Lanes, Linear, Step};
use crate::{Error, Value};

/// Options of a block. [`AttentionOptions`] convert to them, with the defaults of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockOptions {
    /// The attention. Default: [`AttentionOptions::default`].
    pub attention: AttentionOptions,
    /// Hidden channels of the perceptron for each channel. Default: 2.
    pub mlp_ratio: usize,
    /// Layers of the perceptron, at least 1. Default: 2.
    pub mlp_layers: usize,
    /// The probability of dropout of grades after each layer of the perceptron, and after attention unless its own
    /// options have one. Default: `None`.
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

impl BlockOptions {
    /// Checks the options for tokens of so many channels.
    pub(super) fn check(&self, geometry: Geometry, channels: Channels) -> Result<(), Error> {
        self.attention.check(geometry, channels)?;
        at_least_one("mlp_ratio", self.mlp_ratio)?;
        at_least_one("mlp_layers", self.mlp_layers)
    }
}

/// The linear maps of the factors, in the order of the products. Without joins there are two.
const FACTORS: [(&str, Initialization); 4] = [
    ("linear_left", Initialization::Default),
    ("linear_right", Initialization::AlmostUnitScalar),
    ("linear_join_left", Initialization::Default),
    ("linear_join_right", Initialization::Default),
];

impl Layers {
    /// A block: `x + attention(norm(x))`, then `x + perceptron(norm(x))`. Its parameters are under `norm1`, `attention`, `norm2` and `mlp`.
    ///
    /// # Errors
    /// [`Error::Option`] for no head, no channel, ratios or layers of 0, what is not a probability, and an odd number of
    /// multivector channels with joins; [`Error::Geometry`] for choices that the algebra does not have;
    /// [`Error::Shape`] and [`Error::Count`] for values that do not fit.
    pub fn block(
        &mut self,
        prefix: &str,
        x: Value,
        channels: Channels,
        options: &BlockOptions,
        beside: &Beside,
    ) -> Result<Value, Error> {
        options.check(self.geometry, channels)?;
        let attention = AttentionOptions {
            dropout: options.attention.dropout.or(options.dropout),
            ..options.attention
        };
        let normed = self.block_norm(&under(prefix, "norm1"), x, channels)?;
        let of_attention = under(prefix, "attention");
        let made = self.self_attention(&of_attention, normed, channels, &attention, beside)?;
        let x = self.network.scaled_sum([x, made], 1.0)?;
        let normed = self.block_norm(&under(prefix, "norm2"), x, channels)?;
        let of_perceptron = under(prefix, "mlp");
        let made = self.perceptron(&of_perceptron, normed, channels, options, beside.reference)?;
        self.network.scaled_sum([x, made], 1.0)
    }

    /// The perceptron of a block. Dropout of its layers has the places from 1 on, after the place of attention's
    /// dropout.
    fn perceptron(
        &mut self,
        prefix: &str,
        mut x: Value,
        channels: Channels,
        options: &BlockOptions,
        reference: Option<Value>,
    ) -> Result<Value, Error> {
        let hidden = channels.times(options.mlp_ratio);
        // The index of a module in the state dict, where gates and dropout count.
        let (mut module, mut input) = (0, channels);
        for layer in 0..options.mlp_layers {
            let output = match layer + 1 == options.mlp_layers {
                true => channels,
                false => hidden,
            };
            let named = |module: usize| under(prefix, &format!("layers.{module}"));
            if layer == 0 && self.geometry.product {
                x = self.bilinear(&named(module), x, [input, output], reference)?;
            } else {
                x = self.gate(x, input)?;
                let start = Initialization::Default;
                x = self.linear(&named(module + 1), x, [input, output], start)?;
                module += 1;
            }
            x = self.dropout(x, output, options.dropout, layer + 1)?;
            module += 1 + usize::from(options.dropout.is_some());
            input = output;
        }
        Ok(x)
    }

    /// Products and joins of linear maps, then a linear map. Half of the multivector channels are products with
    /// joins, all of them without. Its parameters are under `linear_left`, `linear_right`, `linear_join_left`,
    /// `linear_join_right` and `linear_out`.
    ///
    /// # Errors
    /// [`Error::Option`] without multivector channels on a side, and for an odd number of them with joins; [`Error::Count`] for joins
    /// without a reference; the errors of [`Self::linear`].
    pub fn bilinear(
        &mut self,
        prefix: &str,
        x: Value,
        [input, output]: [Channels; 2],
        reference: Option<Value>,
    ) -> Result<Value, Error> {
        let (geometry, made) = (self.geometry, output.multivectors);
        for (option, got) in [
            (
                "multivector channels of the input of a bilinear layer",
                input.multivectors,
            ),
            ("multivector channels of a bilinear layer", made),
        ] {
            at_least_one(option, got)?;
        }
        if geometry.join && !made.is_multiple_of(2) {
            return Err(Error::Option {
                option: "multivector channels of a bilinear layer",
                expected: "an even number",
                got: made as f64,
            });
        }
        let kinds = if geometry.join { 2 } else { 1 };
        let (each, factors) = (made / kinds, &FACTORS[..2 * kinds]);
        let named = factors.iter().map(|&(name, start)| match input.scalars {
            // Without scalar inputs there is no bias that could start near 1.
            0 => (under(prefix, name), Initialization::Default),
            _ => (under(prefix, name), start),
        });
        let named: Vec<_> = named.collect();
        let step = Linear::beside_scalars(geometry, input, &vec![each; factors.len()])?;
        let mut inputs = vec![self.linears(&named, step, x)?];
        inputs.extend(reference.filter(|_| geometry.join));
        let step = Lanes::products(geometry, each, input.scalars)?;
        let products = self.network.step(Step::Lanes(step), &inputs)?;
        let channels = [Channels::new(made, input.scalars), output];
        let (name, start) = (under(prefix, "linear_out"), Initialization::Default);
        let x = self.linear(&name, products, channels, start)?;
        match geometry.product_norm {
            true => self.norm(x, output),
            false => Ok(x),
        }
    }
}
