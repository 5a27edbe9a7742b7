//! CGENN's steerable geometric product layer.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions, SteerableOptions};
use flashcliff::{Algebra, Bias, Norm, Operator};
use flashcliff_network::{Axis, Value};

use super::{at_least_one, normal};
use crate::Error;
use crate::choices::{self, NORM};
use crate::objective::description::Description;
use crate::op::network::Applied;

/// Options of the steerable geometric product layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteerableLayerOptions {
    /// Adds a linear map of the input: `y = (left(x) + z) / sqrt 2` instead of `y = z`. Default: yes.
    pub first_order: bool,
    /// The start value of the parameter of the right factor's normalisation; `None` leaves the normalisation out. Default: 0.
    pub normalization_init: Option<f64>,
}

impl SteerableLayerOptions {
    /// The name of the norm of the right factor, for checkpoints.
    pub(super) fn norm(&self) -> &'static str {
        match self.normalization_init {
            Some(_) => "grade_norm",
            None => Norm::None.name(),
        }
    }
}

impl Default for SteerableLayerOptions {
    fn default() -> Self {
        Self {
            first_order: true,
            normalization_init: Some(0.0),
        }
    }
}

/// The geometric product of each channel with a normalised linear map of all channels, weighted by
/// path.
///
/// `r = normalization(linear_right(x))`, `z_j = sum_ik weight[c, path(i,j,k)] e(i,j,k) x_i r_k`, `y
/// = (linear_left(x) + z) / sqrt 2`.
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `weight` | `[C, P]` | normal, std `1 / sqrt(dim + 1)` |
/// | `normalization.a` | `[C, G]` | `normalization_init` |
/// | `linear_right.weight` | `[C, C, G]` | normal, std `1 / sqrt(C)` |
/// | `linear_left.weight` | `[C, C, G]` | normal, std `1 / sqrt(C)` |
/// | `linear_left.bias` | `[1, C, 1]` | 0 |
///
/// The whole layer is one node of the graph.
///
/// Source: CGENN, `SteerableGeometricProductLayer` (arXiv 2305.11141, section 4).
#[derive(Clone)]
pub struct SteerableGeometricProduct {
    operators: Operators,
    right: Tensor,
    weight: Tensor,
    a: Option<Tensor>,
    left: Option<(Tensor, Tensor)>,
    applied: Applied,
}

/// The operators of the layer.
#[derive(Clone)]
struct Operators {
    /// A linear map for each grade, without bias.
    right: Arc<Operator>,
    /// A linear map for each grade, with bias, for the first-order term.
    left: Option<Arc<Operator>>,
    /// The weighted product, with normalisation and first-order term.
    product: Arc<Operator>,
}

impl SteerableGeometricProduct {
    /// A layer for `channels` channels.
    ///
    /// # Errors
    /// [`Error::Option`] without channels; the errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        channels: usize,
        options: SteerableLayerOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("channels", channels)])?;
        let linear = |bias| {
            LinearOptions::default()
                .with_per_grade(true)
                .with_bias(bias)
        };
        let normalize = options.normalization_init.is_some();
        let product = SteerableOptions::default()
            .with_first_order(options.first_order)
            .with_normalize(normalize);
        let left = options
            .first_order
            .then(|| ops::mv_linear(algebra, &linear(Bias::Scalar)))
            .transpose()?
            .map(Arc::new);
        let operators = Operators {
            right: Arc::new(ops::mv_linear(algebra, &linear(Bias::None))?),
            left,
            product: Arc::new(ops::steerable_product(algebra, &product)?),
        };

        choices::note_algebra(&vb, algebra);
        choices::note(&vb, NORM, options.norm());
        let grades = algebra.grade_count();
        let init = normal(1.0 / (grades as f64).sqrt());
        let weight = vb.get_with_hints((channels, algebra.path_count()), "weight", init)?;
        let a = match options.normalization_init {
            None => None,
            Some(start) => {
                let vb = vb.pp("normalization");
                Some(vb.get_with_hints((channels, grades), "a", Init::Const(start))?)
            }
        };
        let shape = (channels, channels, grades);
        let init = normal(1.0 / (channels as f64).sqrt());
        let right = vb
            .pp("linear_right")
            .get_with_hints(shape, "weight", init)?;
        let left = if options.first_order {
            let vb = vb.pp("linear_left");
            let weight = vb.get_with_hints(shape, "weight", init)?;
            let bias = vb.get_with_hints((1, channels, 1), "bias", Init::Const(0.0))?;
            Some((weight, bias))
        } else {
            None
        };
        Ok(Self {
            operators,
            right,
            weight,
            a,
            left,
            applied: Applied::default(),
        })
    }
}

impl SteerableGeometricProduct {
    /// The layer in a network, on a value `[blades, rows, C]`.
    pub(crate) fn describe(
        &self,
        network: &mut Description,
        x: Value,
    ) -> std::result::Result<Value, Error> {
        let shape = |tensor: &Tensor| tensor.dims().to_vec();
        let channels = self.weight.dims()[0];
        let weight = [(&self.right, shape(&self.right))];
        let right = network.operator(&self.operators.right, &[x], &weight)?;
        let mut factors = vec![x, right];
        if let (Some((weight, bias)), Some(operator)) = (&self.left, &self.operators.left) {
            let parameters = [(weight, shape(weight)), (bias, vec![channels])];
            factors.push(network.operator(operator, &[x], &parameters)?);
        }
        let mut parameters = vec![(&self.weight, shape(&self.weight))];
        parameters.extend(self.a.as_ref().map(|a| (a, shape(a))));
        network.operator(&self.operators.product, &factors, &parameters)
    }
}

impl Module for SteerableGeometricProduct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let describe = |network: &mut Description| {
            let blades = self.operators.product.algebra().blade_count();
            let axes = [blades, self.weight.dims()[0]].map(Axis::Fixed);
            let shape = [axes[0], Axis::Rows, axes[1]];
            let x = network.network.features("x", &shape);
            self.describe(network, x)
        };
        Ok(self.applied.apply("steerable_product", &[x], describe)?)
    }
}

impl std::fmt::Debug for SteerableGeometricProduct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteerableGeometricProduct")
            .field("channels", &self.weight.dims()[0])
            .field("first_order", &self.left.is_some())
            .field("normalize", &self.a.is_some())
            .finish_non_exhaustive()
    }
}
