//! The convex hull model.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder};
use flashcliff::{Algebra, Signature};
use flashcliff_network::{Activation, Value};

use crate::Error;
use crate::layers::{PointEmbedding, SteerableGeometricProduct, SteerableLayerOptions, linear};
use crate::objective::description::Description;
use crate::op::network::Applied;

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
    hidden: Linear,
    head: Linear,
    applied: Applied,
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
        Ok(Self {
            algebra,
            embedding,
            products,
            hidden: linear(CHANNELS, CHANNELS, vb.pp("mlp.0"))?,
            head: linear(CHANNELS, 1, vb.pp("mlp.2"))?,
            applied: Applied::default(),
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

    /// The model as a network, to its prediction.
    pub(super) fn describe(&self, network: &mut Description) -> std::result::Result<Value, Error> {
        let mut x = self.embedding.describe(network)?;
        for product in &self.products {
            network.network.block();
            x = product.describe(network, x)?;
        }
        network.network.block();
        let norms = network.network.blade_norm(x)?;
        let hidden = network.linear(self.algebra, norms, &self.hidden)?;
        let hidden = network.network.activation(hidden, Activation::Silu)?;
        network.linear(self.algebra, hidden, &self.head)
    }
}

impl Module for Hulls {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let describe = |network: &mut Description| self.describe(network);
        let prediction = self.applied.apply("hulls", &[points], describe)?;
        prediction.flatten_all()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use flashcliff::Dtype;
    use flashcliff_network::Keep;

    use super::*;
    use crate::init::Parameters;

    /// The points as multivectors, and sums that operators save, come on top.
    #[test]
    fn the_count_of_saved_elements_is_that_of_a_forward_pass() {
        let (parameters, batch) = (Parameters::seeded(1), 64);
        let hulls = Hulls::new(parameters.builder(DType::F32, &Device::Cpu)).unwrap();
        let mut description = Description::default();
        let prediction = hulls.describe(&mut description).unwrap();
        let (mut network, _) = description.into_parts();
        let shape = network.shape(prediction).unwrap().to_vec();
        let seed = network.features("seed", &shape);
        let pairs = network.gradients(prediction, seed, Keep::All).unwrap();
        let gradients: Vec<Value> = pairs.iter().map(|&(_, gradient)| gradient).collect();
        let stages: [&[Value]; 2] = [&[prediction], &gradients];
        let plan = network.plan_stages(&stages, batch, [Dtype::F32; 2]);
        let kept = plan.unwrap().kept_bytes() as f64 / 4.0;
        let ratio = kept / Hulls::saved_elements(batch) as f64;
        assert!((1.0..1.03).contains(&ratio), "{ratio}");
    }
}
