//! The perceptron of a block. It begins with products and joins, if the geometry says so.

use super::Transformer;
use super::layers::Layers;
use crate::tokens::{Channels, Gated, Linear, Products, Step};
use crate::{Error, Value};

/// The linear maps of the factors, in the order of the products. Without joins there are two.
const FACTORS: [&str; 4] = [
    "linear_left",
    "linear_right",
    "linear_join_left",
    "linear_join_right",
];

impl Transformer {
    /// The perceptron of the block with this number.
    pub(super) fn perceptron(
        &self,
        layers: &mut Layers,
        block: usize,
        x: Value,
        reference: Option<Value>,
    ) -> Result<Value, Error> {
        let hidden = self.hidden.times(self.mlp_ratio);
        // The index of a module in the state dict, where gates and dropout count.
        let (mut x, mut module, mut input) = (x, 0, self.hidden);
        for layer in 0..self.mlp_layers {
            let output = match layer + 1 == self.mlp_layers {
                true => self.hidden,
                false => hidden,
            };
            let named = |module: usize| format!("blocks.{block}.mlp.layers.{module}");
            if layer == 0 && self.geometry.product {
                let channels = [input, output];
                x = self.bilinear(layers, &named(module), x, reference, channels)?;
            } else {
                let step = Gated::new(self.geometry, input)?;
                x = layers.network.step(Step::Gated(step), &[x])?;
                x = layers.linear_to(&named(module + 1), x, [input, output])?;
                module += 1;
            }
            x = layers.dropped(x, output, self.dropout, [block, layer + 1])?;
            module += 1 + usize::from(self.dropout.is_some());
            input = output;
        }
        Ok(x)
    }

    /// Products and joins of linear maps, then a linear map. Half of the multivector channels are products with joins, all of them without.
    fn bilinear(
        &self,
        layers: &mut Layers,
        prefix: &str,
        x: Value,
        reference: Option<Value>,
        [input, output]: [Channels; 2],
    ) -> Result<Value, Error> {
        let (geometry, made) = (self.geometry, output.multivectors);
        if geometry.join && !made.is_multiple_of(2) {
            return Err(Error::Option {
                option: "multivector channels of a bilinear layer",
                expected: "an even number",
                got: made as f64,
            });
        }
        let kinds = if geometry.join { 2 } else { 1 };
        let (each, factors) = (made / kinds, 2 * kinds);
        let names: Vec<String> = FACTORS[..factors]
            .iter()
            .map(|name| format!("{prefix}.{name}"))
            .collect();
        let step = Linear::beside_scalars(geometry, input, &vec![each; factors])?;
        let mut inputs = vec![layers.linear(&names, step, x)?];
        inputs.extend(reference);
        let step = Products::new(geometry, each, input.scalars)?;
        let products = layers.network.step(Step::Products(step), &inputs)?;
        let channels = [Channels::new(made, input.scalars), output];
        let x = layers.linear_to(&format!("{prefix}.linear_out"), products, channels)?;
        match geometry.product_norm {
            true => layers.norm(x, output),
            false => Ok(x),
        }
    }
}
