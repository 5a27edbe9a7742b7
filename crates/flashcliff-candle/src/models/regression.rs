//! The O(5) regression model.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use flashcliff::{Algebra, Signature};
use flashcliff_network::Activation;

use crate::Error;
use crate::layers::{
    PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions, apply_linear, linear,
};
use crate::objective::description::{Described, Description};

pub(super) const POINTS: usize = 2;
const CHANNELS: usize = 8;

/// An invariant function of two vectors in 5 dimensions.
///
/// `MVLinear(2 -> 8, one matrix)`, [`SteerableGeometricProduct`] of 8 channels, its scalar parts,
/// then `Linear(8 -> width)`, ReLU, `Linear(width -> width)`, ReLU, `Linear(width -> 1)`. Width 580
/// (344,077 parameters) is CGENN's; 380 gives 149,877. Named as in CGENN: `gp.0`, `gp.1`,
/// `mlp.0`, `mlp.2`, `mlp.4`.
///
/// Source: CGENN, `O5CGMLP`.
#[derive(Debug, Clone)]
pub struct Regression {
    algebra: Algebra,
    embedding: PointEmbedding,
    product: SteerableGeometricProduct,
    mlp: [Linear; 3],
}

impl Regression {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(width: usize, vb: VarBuilder) -> std::result::Result<Self, Error> {
        let algebra = Algebra::new(Signature::new(5, 0, 0).map_err(flashcliff::Error::from)?)?;
        let gp = vb.pp("gp");
        let options = SteerableLayerOptions::default();
        Ok(Self {
            algebra,
            embedding: PointEmbedding::new(algebra, POINTS, CHANNELS, gp.pp(0))?,
            product: SteerableGeometricProduct::new(algebra, CHANNELS, options, gp.pp(1))?,
            mlp: [
                linear(CHANNELS, width, vb.pp("mlp.0"))?,
                linear(width, width, vb.pp("mlp.2"))?,
                linear(width, 1, vb.pp("mlp.4"))?,
            ],
        })
    }
}

impl Regression {
    /// The model as a network.
    pub(super) fn describe(
        &self,
        mut network: Description,
    ) -> std::result::Result<Described, Error> {
        let x = self.embedding.describe(&mut network)?;
        network.network.block();
        let x = self.product.describe(&mut network, x)?;
        network.network.block();
        let [first, second, last] = &self.mlp;
        // The first linear map reads the scalar parts, which come first.
        let mut hidden = x;
        for linear in [first, second] {
            hidden = network.linear(self.algebra, hidden, linear)?;
            hidden = network.network.activation(hidden, Activation::Relu)?;
        }
        let prediction = network.linear(self.algebra, hidden, last)?;
        Ok(network.finish(prediction))
    }
}

impl Module for Regression {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let x = self.product.forward(&self.embedding.forward(points)?)?;
        let [first, second, last] = &self.mlp;
        let hidden = apply_linear(first, &x.get(0)?)?.relu()?;
        let hidden = apply_linear(second, &hidden)?.relu()?;
        apply_linear(last, &hidden)?.squeeze(1)
    }
}
