//! The convex hull model.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use flashcliff::{Algebra, Signature};
use std::sync::Arc;

use crate::Error;
use crate::layers::{PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions, linear};
use crate::op::node::{self, Argument};
use crate::op::trunk::Trunk;

pub(super) const POINTS: usize = 16;
const CHANNELS: usize = 32;
const PRODUCTS: usize = 4;

/// Volume of the convex hull of 16 points in 5 dimensions, invariant under O(5) (not under
/// translations).
///
/// `MVLinear(16 -> 32, one matrix)`, four [`SteerableGeometricProduct`] of 32 channels, the
/// Euclidean norm of each channel over its 32 blades, then `Linear(32 -> 32)`, SiLU, `Linear(32 ->
/// 1)`. 58,849 parameters, named as in CGENN: `net.0`, ..., `net.4`, `mlp.0`, `mlp.2`.
///
/// Source: CGENN, `ConvexHullCGMLP`.
#[derive(Debug, Clone)]
pub struct Hulls {
    embedding: PointEmbedding,
    products: Vec<SteerableGeometricProduct>,
    trunk: Arc<Trunk>,
    hidden: Linear,
    head: Linear,
}

impl Hulls {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// Whatever the core or the builder says.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        let algebra = Algebra::new(Signature::new(5, 0, 0).map_err(flashcliff::Error::from)?)?;
        let net = vb.pp("net");
        let embedding = PointEmbedding::new(algebra, POINTS, CHANNELS, net.pp(0))?;
        let options = SteerableLayerOptions::default();
        let products = (1..=PRODUCTS)
            .map(|i| SteerableGeometricProduct::new(algebra, CHANNELS, options, net.pp(i)))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let trunk = Arc::new(Trunk {
            embedding: embedding.function().clone(),
            layers: products
                .iter()
                .map(|layer| layer.function().clone())
                .collect(),
        });
        Ok(Self {
            embedding,
            products,
            trunk,
            hidden: linear(CHANNELS, CHANNELS, vb.pp("mlp.0"))?,
            head: linear(CHANNELS, 1, vb.pp("mlp.2"))?,
        })
    }
}

impl Module for Hulls {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let vectors = self.embedding.vectors(points)?;
        let mut arguments = vec![Argument::whole(&vectors), self.embedding.bias()];
        for product in &self.products {
            arguments.extend(product.parameters());
        }
        let norms = node::apply(&self.trunk, &arguments)?;
        let hidden = self.hidden.forward(&norms)?.silu()?;
        self.head.forward(&hidden)?.squeeze(1)
    }
}
