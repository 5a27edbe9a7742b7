//! The O(5) regression model.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use flashcliff::{Algebra, Signature};
use flashcliff_network::{Activation, Value};

use crate::Error;
use crate::layers::{PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions, linear};
use crate::objective::description::Description;
use crate::op::network::Applied;

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
    applied: Applied,
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
            applied: Applied::default(),
        })
    }
}

impl Regression {
    /// The model as a network, to its prediction.
    pub(super) fn describe(&self, network: &mut Description) -> std::result::Result<Value, Error> {
        let x = self.embedding.describe(network)?;
        network.network.block();
        let x = self.product.describe(network, x)?;
        network.network.block();
        let [first, second, last] = &self.mlp;
        // The first linear map reads the scalar parts, which come first.
        let mut hidden = x;
        for linear in [first, second] {
            hidden = network.linear(self.algebra, hidden, linear)?;
            hidden = network.network.activation(hidden, Activation::Relu)?;
        }
        network.linear(self.algebra, hidden, last)
    }
}

impl Module for Regression {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let describe = |network: &mut Description| self.describe(network);
        let prediction = self.applied.apply("regression", &[points], describe)?;
        prediction.flatten_all()
    }
}
