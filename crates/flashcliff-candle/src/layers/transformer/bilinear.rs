//! Products and joins of linear maps.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::bound::{Layer, Needs};
use super::{Call, Channels, Geometry, Scope, Tokens};
use crate::Error;

/// Geometric products and joins of linear maps of the input, then a linear map of both.
///
/// The join of `x` and `y` is `r dual(dual(x) ^ dual(y))`, where `dual` is the right complement and `r` the token's
/// reference, see [`join_reference`](super::join_reference). The last map sees the scalars of the input. Without
/// `join` in the geometry there are products alone; without `bivectors` the products lose theirs before the last map;
/// with `product_norm` the result is normalised.
///
/// Parameters: linear maps ([`EquiLinear`](super::EquiLinear)) under `linear_left`, `linear_right`, `linear_join_left`,
/// `linear_join_right` and `linear_out`.
///
/// Sources: GATr (arXiv 2305.18415, section 3), L-GATr (arXiv 2405.14806, section 3).
#[derive(Clone, Debug)]
pub struct GeometricBilinear {
    layer: Layer,
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
        let needs = Needs {
            joins: geometry.join,
            ..Needs::between(input, output)
        };
        let layer = Layer::new(
            "geometric_bilinear",
            geometry,
            needs,
            move |layers, given| {
                layers.bilinear("", given.tokens, [input, output], given.beside.reference)
            },
        );
        Ok(Self {
            layer: layer.bound(&vb)?,
        })
    }

    /// Applies the layer. `reference` is `[samples, items]`.
    ///
    /// # Errors
    /// Tokens of other channels, a reference of another shape.
    pub fn forward(&self, x: &Tokens, reference: &Tensor) -> Result<Tokens> {
        let call = Call::within(Some(reference), &Scope::Sample);
        self.layer.apply(x, &call)
    }

    /// Applies a layer without joins.
    ///
    /// # Errors
    /// Tokens of other channels, and a layer with joins.
    pub fn forward_without_joins(&self, x: &Tokens) -> Result<Tokens> {
        self.layer.apply(x, &Call::default())
    }
}
