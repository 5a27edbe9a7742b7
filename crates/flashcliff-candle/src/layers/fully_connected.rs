//! CGENN's fully connected steerable geometric product layer.

use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Gate, Norm};
use flashcliff_network::Value;

use super::{GradeNorm, MVLinear, SteerableLayerOptions, at_least_one, normal};
use crate::Error;
use crate::choices::{self, NORM};
use crate::objective::description::Description;
use crate::op::node::{self, Argument};
use crate::op::once::entering;
use crate::op::{Core, GpuOptions, WithOptions};

/// The geometric product of channels with normalised linear maps of them, summed over input
/// channels with weights by path.
///
/// `r = normalization(linear_right(x))`, `z_j[m] = sum_n sum_ik weight[m, n, path(i,j,k)] e(i,j,k)
/// x_i[n] r_k[n]`, `y = (linear_left(x) + z) / sqrt 2`.
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `weight` | `[out, in, P]` | normal, std `1 / sqrt(in (dim + 1))` |
/// | `normalization.a` | `[in, G]` | `normalization_init` |
/// | `linear_right.weight` | `[in, in, G]` | normal, std `1 / sqrt(in)` |
/// | `linear_left.weight` | `[out, in, G]` | normal, std `1 / sqrt(in)` |
/// | `linear_left.bias` | `[1, out, 1]` | 0 |
///
/// Source: CGENN, `FullyConnectedSteerableGeometricProductLayer` (arXiv 2305.11141, section 4).
#[derive(Debug, Clone)]
pub struct FullyConnectedSteerableGeometricProduct {
    product: Arc<WithOptions>,
    weight: Tensor,
    normalization: Option<GradeNorm>,
    linear_right: MVLinear,
    linear_left: Option<MVLinear>,
}

impl FullyConnectedSteerableGeometricProduct {
    /// A layer from `in_channels` to `out_channels`.
    ///
    /// # Errors
    /// [`Error::Option`] without channels; the errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        in_channels: usize,
        out_channels: usize,
        options: SteerableLayerOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("in_channels", in_channels), ("out_channels", out_channels)])?;
        let product = ProductOptions::default()
            .with_gate(Gate::None)
            .with_norm(Norm::None);
        let product = ops::fcgp_norm(algebra, &product)?;
        let product = Arc::new(WithOptions::new(product, GpuOptions::default()));
        choices::note_algebra(&vb, algebra);
        choices::note(&vb, NORM, options.norm());
        let shape = (out_channels, in_channels, algebra.path_count());
        let init = normal(1.0 / ((in_channels * algebra.grade_count()) as f64).sqrt());
        let weight = vb.get_with_hints(shape, "weight", init)?;
        let normalization = options
            .normalization_init
            .map(|start| GradeNorm::new(algebra, in_channels, start, vb.pp("normalization")))
            .transpose()?;
        let linear = |out_channels, bias, vb| {
            let options = LinearOptions::default()
                .with_per_grade(true)
                .with_bias(bias);
            MVLinear::new(algebra, in_channels, out_channels, &options, vb)
        };
        let linear_right = linear(in_channels, Bias::None, vb.pp("linear_right"))?;
        let linear_left = options
            .first_order
            .then(|| linear(out_channels, Bias::Scalar, vb.pp("linear_left")))
            .transpose()?;
        Ok(Self {
            product,
            weight,
            normalization,
            linear_right,
            linear_left,
        })
    }

    /// Limits the memory that a block of rows takes in the workspace on a GPU, like [`GpuOptions::block_bytes`].
    #[must_use]
    pub fn with_block_bytes(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.product).options.block_bytes = Some(bytes);
        self
    }

    /// The layer in a network, on a value `[blades, rows, in]`.
    pub(crate) fn describe(
        &self,
        network: &mut Description,
        x: Value,
    ) -> std::result::Result<Value, Error> {
        // Its gradient is the last that is added to that of `x`: a product adds to none.
        let left = self.linear_left.as_ref();
        let left = left.map(|left| left.describe(network, x)).transpose()?;
        let mut right = self.linear_right.describe(network, x)?;
        if let Some(normalization) = &self.normalization {
            right = normalization.describe(network, right)?;
        }
        let weight = network.parameter(&self.weight, self.weight.dims())?;
        let weight = network.network.reverse_axes(weight)?;
        let operator = Arc::new(self.product.operator().clone());
        let product = network.operator(&operator, &[x, right, weight], &[])?;
        match left {
            None => Ok(product),
            Some(left) => Ok(network.network.scaled_sum([left, product], FRAC_1_SQRT_2)?),
        }
    }
}

impl Module for FullyConnectedSteerableGeometricProduct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut right = self.linear_right.forward(x)?;
        if let Some(normalization) = &self.normalization {
            right = normalization.forward(&right)?;
        }
        // The weight is [out, in, paths] in the state dict, and the kernel reads [paths, in, out].
        let weight = entering(&self.weight)?.permute((2, 1, 0))?;
        let arguments = [x, &right, &weight].map(Argument::whole);
        let product = node::apply(&self.product, &arguments)?;
        match &self.linear_left {
            None => Ok(product),
            Some(left) => (left.forward(x)? + product)?.affine(FRAC_1_SQRT_2, 0.0),
        }
    }
}
