//! Products and joins of linear maps.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::part::{Function, Part, linear, linear_parameters};
use super::{Channels, Initialization, Tokens};
use crate::Error;
use crate::op::transformer::linear::Linear;
use crate::op::transformer::product::Products;
use crate::op::transformer::stage::Stage;

/// The linear maps of the factors, in the order of the products.
const FACTORS: [(&str, Initialization); 4] = [
    ("linear_left", Initialization::Default),
    ("linear_right", Initialization::AlmostUnitScalar),
    ("linear_join_left", Initialization::Default),
    ("linear_join_right", Initialization::Default),
];

/// The stages of the layer. It has as many hidden multivector channels as outputs, half of them products, half joins.
pub(super) fn bilinear(
    input: Channels,
    output: Channels,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    let hidden = output.multivectors;
    if !hidden.is_multiple_of(2) {
        return Err(Error::Option {
            option: "multivector channels of a bilinear layer",
            expected: "an even number",
            got: hidden as f64,
        });
    }
    let each = hidden / 2;
    let mut parameters = Vec::new();
    for (name, initialization) in FACTORS {
        // Without scalar inputs there is no bias that could start near 1.
        let initialization = match input.scalars {
            0 => Initialization::Default,
            _ => initialization,
        };
        let output = Channels::new(each, 0);
        let vb = vb.pp(name);
        parameters.extend(linear_parameters(input, output, initialization, &vb)?);
    }
    let factors = Part {
        stages: vec![
            Stage::Linear(Linear::beside_scalars(input, vec![each; FACTORS.len()])?),
            Stage::Products(Products::new(each, input.scalars)?),
        ],
        parameters,
    };
    let made = Channels::new(hidden, input.scalars);
    let out = linear(made, output, Initialization::Default, &vb.pp("linear_out"))?;
    Ok(factors.then(out))
}

/// Geometric products and joins of linear maps of the input, then a linear map of both.
///
/// The join of `x` and `y` is `r dual(dual(x) ^ dual(y))`, where `dual` is the right complement and `r` the token's reference, see
/// [`join_reference`](super::join_reference). The last map sees the scalars of the input.
///
/// Parameters: those of [`EquiLinear`](super::EquiLinear) under `linear_left`, `linear_right`, `linear_join_left`, `linear_join_right` and
/// `linear_out`.
///
/// Source: GATr (arXiv 2305.18415, section 3).
#[derive(Clone, Debug)]
pub struct GeometricBilinear {
    function: Function,
}

impl GeometricBilinear {
    /// A layer between so many channels. The number of multivector channels of the output is even.
    ///
    /// # Errors
    /// [`Error::Option`] for an odd number, and the errors of the builder.
    pub fn new(
        input: Channels,
        output: Channels,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Ok(Self {
            function: Function::new("geometric_bilinear", bilinear(input, output, &vb)?),
        })
    }

    /// Applies the layer. `reference` is `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        self.function.apply(x, Some(reference))
    }
}
