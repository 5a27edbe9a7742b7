//! Products and joins of linear maps.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use flashcliff_network::tokens::{Linear, Products, Step};

use super::part::{Function, Part, linear, linear_parameters};
use super::pointwise::norm;
use super::{Call, Channels, Geometry, Initialization, Tokens};
use crate::Error;

/// The linear maps of the factors, in the order of the products. Without joins there are two.
const FACTORS: [(&str, Initialization); 4] = [
    ("linear_left", Initialization::Default),
    ("linear_right", Initialization::AlmostUnitScalar),
    ("linear_join_left", Initialization::Default),
    ("linear_join_right", Initialization::Default),
];

/// The pieces of the layer. It has as many hidden multivector channels as outputs; with joins half of them are products, half joins.
pub(super) fn bilinear(
    geometry: Geometry,
    input: Channels,
    output: Channels,
    vb: &VarBuilder,
) -> std::result::Result<Part, Error> {
    let hidden = output.multivectors;
    if geometry.join && !hidden.is_multiple_of(2) {
        return Err(Error::Option {
            option: "multivector channels of a bilinear layer",
            expected: "an even number",
            got: hidden as f64,
        });
    }
    let kinds = if geometry.join { 2 } else { 1 };
    let (each, factors) = (hidden / kinds, &FACTORS[..2 * kinds]);
    let mut parameters = Vec::new();
    for &(name, initialization) in factors {
        // Without scalar inputs there is no bias that could start near 1.
        let initialization = match input.scalars {
            0 => Initialization::Default,
            _ => initialization,
        };
        let output = Channels::new(each, 0);
        let vb = vb.pp(name);
        let made = linear_parameters(geometry, input, output, initialization, true, &vb)?;
        parameters.extend(made);
    }
    let layers = vec![each; factors.len()];
    let factors = Linear::beside_scalars(geometry, input, &layers)?;
    let products = Products::new(geometry, each, input.scalars)?;
    let factors = Part::linear(factors, &parameters).then(Part::plain(Step::Products(products)));
    let made = Channels::new(hidden, input.scalars);
    let vb = vb.pp("linear_out");
    let out = linear(geometry, made, output, Initialization::Default, &vb)?;
    let part = factors.then(out);
    Ok(match geometry.product_norm {
        true => part.then(norm(geometry, output)),
        false => part,
    })
}

/// Geometric products and joins of linear maps of the input, then a linear map of both.
///
/// The join of `x` and `y` is `r dual(dual(x) ^ dual(y))`, where `dual` is the right complement and `r` the token's reference, see
/// [`join_reference`](super::join_reference). The last map sees the scalars of the input. Without `join` in the geometry there are products alone;
/// without `bivectors` the products lose theirs before the last map; with `product_norm` the result is normalised.
///
/// Parameters: those of [`EquiLinear`](super::EquiLinear) under `linear_left`, `linear_right`, `linear_join_left`, `linear_join_right` and
/// `linear_out`.
///
/// Sources: GATr (arXiv 2305.18415, section 3), L-GATr (arXiv 2405.14806, section 3).
#[derive(Clone, Debug)]
pub struct GeometricBilinear {
    function: Function,
}

impl GeometricBilinear {
    /// A layer of GATr between so many channels. The number of multivector channels of the output is even.
    ///
    /// # Errors
    /// [`Error::Option`] for an odd number, and the errors of the builder.
    pub fn new(
        input: Channels,
        output: Channels,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        Self::over(Geometry::gatr()?, input, output, vb)
    }

    /// A layer over a geometry, or an algebra.
    ///
    /// # Errors
    /// [`Error::Geometry`] for an algebra that lacks what the geometry needs, and the errors of [`Self::new`].
    pub fn over(
        geometry: impl Into<Geometry>,
        input: Channels,
        output: Channels,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let geometry = geometry.into();
        let part = bilinear(geometry, input, output, &vb)?;
        Ok(Self {
            function: Function::new("geometric_bilinear", geometry, part),
        })
    }

    /// Applies the layer. `reference` is `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        self.function.apply(
            x,
            &Call {
                reference: Some(reference),
                ..Call::default()
            },
        )
    }

    /// Applies a layer without joins.
    ///
    /// # Errors
    /// Tokens of other channels, and a layer with joins.
    pub fn forward_without_joins(&self, x: &Tokens) -> Result<Tokens> {
        self.function.apply(x, &Call::default())
    }
}
