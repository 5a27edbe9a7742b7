//! flash-clifford's layer.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions, LinearSgpOptions, ProductOptions};
use flashcliff::{Algebra, Bias, Norm, Operator, WeightLayout};

use super::{at_least_one, normal};
use crate::Error;
use crate::choices::{self, NORM};
use crate::op::node::{self, Argument};
use crate::op::{GpuOptions, WithOptions};

/// Options of [`FlashCliffordLayer`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlashCliffordOptions {
    /// The norm per grade at the end. flash-clifford uses [`Norm::Rms`], which is the default if all vectors square to
    /// one sign, and **breaks equivariance** in other algebras.
    pub norm: Norm,
    /// Sums the product over all input channels instead of working within each. Default: no.
    pub fully_connected: bool,
    /// The blades that the bias of the linear map is added to. flash-clifford adds it to every blade
    /// ([`Bias::EveryBlade`]), which **breaks equivariance** as soon as training moves it off zero; use that only to
    /// run its trained weights. The default is the scalar blade.
    pub bias: Bias,
}

impl Default for FlashCliffordOptions {
    fn default() -> Self {
        Self {
            norm: Norm::Invariant,
            fully_connected: false,
            bias: Bias::Scalar,
        }
    }
}

/// `y = W[grade] x + bias`, then the gated product of `x` and `y` and a norm per grade
/// ([`mv_linear_sgp_norm`](crate::functional::mv_linear_sgp_norm), or
/// [`fcgp_norm`](crate::functional::fcgp_norm) after [`mv_linear`](crate::functional::mv_linear),
/// gate GELU, eps `1e-6`).
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `linear_weight` | `[G, C, C]`: grade, input, output | normal, std as below |
/// | `linear_bias` | `[1, 1, C]` | 0 |
/// | `gp_weight` | `[C, P]` or `[P, C, C]`: path, input, output | normal, std `1 / sqrt(dim + 1)` |
///
/// The norm belongs to the weights: checkpoints name it, and weights of another norm are refused.
///
/// `gp_weight` has three axes in the fully connected form. The std of `linear_weight` is
/// `1 / sqrt(C)` in that form, else `1 / sqrt(C (dim + 1))`.
///
/// Source: flash-clifford, `modules/layer.py`.
#[derive(Clone)]
pub struct FlashCliffordLayer {
    algebra: Algebra,
    options: FlashCliffordOptions,
    work: Work,
    linear_weight: Tensor,
    linear_bias: Option<Tensor>,
    gp_weight: Tensor,
}

/// The operators of a layer.
#[derive(Debug, Clone)]
enum Work {
    /// One operator for the linear map and the product.
    Channelwise(Arc<Operator>),
    /// The linear map, then the product.
    FullyConnected {
        linear: Arc<Operator>,
        product: Arc<WithOptions>,
    },
}

impl FlashCliffordLayer {
    /// A layer for `channels` channels.
    ///
    /// # Errors
    /// [`Error::Option`] without channels; the errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        channels: usize,
        options: FlashCliffordOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("channels", channels)])?;
        let linear = LinearOptions::default()
            .with_per_grade(true)
            .with_bias(options.bias)
            .with_weight_layout(WeightLayout::GradeInOut);
        let norm = options.norm;
        let work = if options.fully_connected {
            let product = ProductOptions::default().with_norm(norm);
            let linear = ops::mv_linear(algebra, &linear)?;
            let product = ops::fcgp_norm(algebra, &product)?;
            Work::FullyConnected {
                linear: Arc::new(linear),
                product: Arc::new(WithOptions::new(product, GpuOptions::default())),
            }
        } else {
            let product = LinearSgpOptions::default()
                .with_linear(linear)
                .with_norm(norm);
            Work::Channelwise(Arc::new(ops::mv_linear_sgp_norm(algebra, &product)?))
        };
        choices::note_algebra(&vb, algebra);
        choices::note(&vb, NORM, norm.name());
        let (grades, paths) = (algebra.grade_count(), algebra.path_count());
        let fan = if options.fully_connected {
            channels
        } else {
            channels * grades
        };
        let linear_weight = vb.get_with_hints(
            (grades, channels, channels),
            "linear_weight",
            normal(1.0 / (fan as f64).sqrt()),
        )?;
        let linear_bias = match options.bias {
            Bias::None => None,
            _ => Some(vb.get_with_hints((1, 1, channels), "linear_bias", Init::Const(0.0))?),
        };
        let init = normal(1.0 / (grades as f64).sqrt());
        let gp_weight = if options.fully_connected {
            vb.get_with_hints((paths, channels, channels), "gp_weight", init)?
        } else {
            vb.get_with_hints((channels, paths), "gp_weight", init)?
        };
        Ok(Self {
            algebra,
            options,
            work,
            linear_weight,
            linear_bias,
            gp_weight,
        })
    }

    /// The options, with the norm.
    pub fn options(&self) -> &FlashCliffordOptions {
        &self.options
    }

    /// Limits the memory that a block of rows of the fully connected product takes in the workspace on a GPU, like
    /// [`GpuOptions::block_bytes`]. The other form has no blocks.
    #[must_use]
    pub fn with_block_bytes(mut self, bytes: usize) -> Self {
        if let Work::FullyConnected { product, .. } = &mut self.work {
            Arc::make_mut(product).options.block_bytes = Some(bytes);
        }
        self
    }
}

impl Module for FlashCliffordLayer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let channels = [self.linear_weight.dim(2)?];
        let mut arguments = vec![Argument::whole(x), Argument::whole(&self.linear_weight)];
        if let Some(bias) = &self.linear_bias {
            arguments.push(Argument::shaped(bias, &channels));
        }
        match &self.work {
            Work::Channelwise(operator) => {
                arguments.push(Argument::whole(&self.gp_weight));
                Ok(node::apply(operator, &arguments)?)
            }
            Work::FullyConnected { linear, product } => {
                let y = node::apply(linear, &arguments)?;
                let arguments = [x, &y, &self.gp_weight].map(Argument::whole);
                Ok(node::apply(product, &arguments)?)
            }
        }
    }
}

impl std::fmt::Debug for FlashCliffordLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashCliffordLayer")
            .field("algebra", &self.algebra)
            .field("channels", &self.linear_weight.dims()[2])
            .field("norm", &self.options.norm)
            .field("fully_connected", &self.options.fully_connected)
            .field("bias", &self.options.bias)
            .finish_non_exhaustive()
    }
}
