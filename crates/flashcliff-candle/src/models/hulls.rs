//! The convex hull model.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use flashcliff::{Algebra, Signature};
use flashcliff_network::Activation;
use std::sync::Arc;

use crate::Error;
use crate::layers::{
    PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions, apply_linear, linear,
};
use crate::objective::description::{Described, Description};
use crate::op::node::{self, Argument};
use crate::op::trunk::Trunk;

pub(super) const POINTS: usize = 16;
const CHANNELS: usize = 32;
const PRODUCTS: usize = 4;
const BLADES: usize = 32;
/// The tensors that a product saves: `right(x)`, `left(x)` and the output.
const SAVED_BY_A_PRODUCT: usize = 3;
/// The tensors that the head saves: the norms, and the hidden layer before and after its SiLU.
const SAVED_BY_THE_HEAD: usize = 3;

/// Volume of the convex hull of 16 points in 5 dimensions, invariant under O(5) (not under
/// translations).
///
/// `MVLinear(16 -> 32, one matrix)`, four [`SteerableGeometricProduct`] of 32 channels, the
/// Euclidean norm of each channel over its 32 blades, then `Linear(32 -> 32)`, SiLU, `Linear(32 ->
/// 1)`. 58,849 parameters, named as in CGENN: `net.0`, ..., `net.4`, `mlp.0`, `mlp.2`.
///
/// # Memory of a training step
/// In `f32` at batch 128, where an activation of full multivectors is `A` = 32 blades x 128 x 32
/// channels x 4 bytes:
///
/// | what | size | KiB |
/// |---|---|---|
/// | parameters | 58,849 | 230 |
/// | Adam's moments | 2 x 58,849 | 460 |
/// | saved: the embedded points | `A` | 512 |
/// | saved by each of four products: `linear_right(x)`, `linear_left(x)`, the output | 3 `A` | 4 x 1,536 |
/// | saved by the head: the norms, the hidden layer before and after SiLU | 3 x 128 x 32 | 48 |
/// | **counted** | | **7,394** |
/// | gradients of the parameters | 58,849 | 230 |
/// | in the backward pass of a product: gradients of output, input and both linear maps | 4 `A` | 2,048 |
/// | batch, its targets, the points as multivectors | | 89 |
/// | workspace of the product: sums of parameter gradients by chunks of rows; small tensors | | 387 |
/// | **peak** of an [`Objective`](crate::objective::Objective), measured | | **10,148** |
///
/// Nothing else is saved: gates, normalised factors and sums over channels are recomputed. `flashcliff bench` measures
/// the peak and prints it beside the count ([`Hulls::saved_elements`]). Neither number has the buffers that the matrix
/// products keep for each thread of the process, of the size of a cache.
///
/// Source: CGENN, `ConvexHullCGMLP`.
#[derive(Debug, Clone)]
pub struct Hulls {
    algebra: Algebra,
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
    /// The errors of the core and of the builder.
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
            algebra,
            embedding,
            products,
            trunk,
            hidden: linear(CHANNELS, CHANNELS, vb.pp("mlp.0"))?,
            head: linear(CHANNELS, 1, vb.pp("mlp.2"))?,
        })
    }
}

impl Hulls {
    /// The number of elements of the activations that the forward pass keeps for the backward pass. The table above
    /// lists them.
    ///
    /// ```
    /// use flashcliff_candle::models::Hulls;
    ///
    /// assert_eq!(Hulls::saved_elements(128), 13 * 32 * 128 * 32 + 3 * 128 * 32);
    /// ```
    pub fn saved_elements(batch: usize) -> usize {
        let rows = batch * CHANNELS;
        let trunk = (1 + SAVED_BY_A_PRODUCT * PRODUCTS) * BLADES * rows;
        trunk + SAVED_BY_THE_HEAD * rows
    }

    /// The model as a network.
    pub(super) fn describe(
        &self,
        mut network: Description,
    ) -> std::result::Result<Described, Error> {
        let mut x = self.embedding.describe(&mut network)?;
        for product in &self.products {
            network.network.block();
            x = product.describe(&mut network, x)?;
        }
        network.network.block();
        let norms = network.network.blade_norm(x)?;
        let hidden = network.linear(self.algebra, norms, &self.hidden)?;
        let hidden = network.network.activation(hidden, Activation::Silu)?;
        let prediction = network.linear(self.algebra, hidden, &self.head)?;
        Ok(network.finish(prediction))
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
        let hidden = apply_linear(&self.hidden, &norms)?.silu()?;
        apply_linear(&self.head, &hidden)?.squeeze(1)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::init::Parameters;
    use crate::op::function::{Array, Function};

    #[test]
    fn the_count_of_saved_elements_is_that_of_the_buffers() {
        let parameters = Parameters::seeded(1);
        let hulls = Hulls::new(parameters.builder(DType::F32, &Device::Cpu)).unwrap();
        let batch = 3;
        let graded = [CHANNELS, CHANNELS, 6];
        let mut shapes = vec![vec![5, batch, CHANNELS], vec![CHANNELS]];
        for _ in 0..PRODUCTS {
            let (weight, a) = (vec![CHANNELS, 56], vec![CHANNELS, 6]);
            shapes.extend([graded.to_vec(), weight, a, graded.to_vec(), vec![CHANNELS]]);
        }
        let data: Vec<Vec<f32>> = shapes
            .iter()
            .map(|shape| vec![0.1; shape.iter().product()])
            .collect();
        let arrays: Vec<Array<f32>> = shapes
            .iter()
            .zip(&data)
            .map(|(shape, data)| Array { data, shape })
            .collect();
        let mut norms = vec![0.0; batch * CHANNELS];
        let saved = Function::<f32>::forward(&*hulls.trunk, &arrays, &mut norms).unwrap();
        let head = SAVED_BY_THE_HEAD * batch * CHANNELS;
        assert_eq!(saved.elements() + head, Hulls::saved_elements(batch));
    }
}
