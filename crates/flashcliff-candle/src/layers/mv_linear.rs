//! Linear maps of multivector channels.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, Operator};
use flashcliff_network::Value;

use super::{at_least_one, normal};
use crate::Error;
use crate::choices;
use crate::objective::description::Description;
use crate::op::node::{self, Argument};

/// `y_i = W[.., grade(i)] x_i`, plus a bias on the scalar blade.
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `weight` | `[out, in, G]`, or `[out, in]` without `per_grade` | normal, std `1 / sqrt(in)` |
/// | `bias` | `[1, out, 1]` | 0 |
///
/// A bias on every blade ([`Bias::EveryBlade`]) breaks equivariance.
///
/// Source: CGENN, `MVLinear` (`per_grade` is its `subspaces`).
#[derive(Debug, Clone)]
pub struct MVLinear {
    operator: Arc<Operator>,
    weight: Tensor,
    bias: Option<Tensor>,
}

impl MVLinear {
    /// A layer from `in_channels` to `out_channels`.
    ///
    /// # Errors
    /// [`Error::Option`] without channels, options that the core has no kernels for, and the errors of the builder.
    pub fn new(
        algebra: Algebra,
        in_channels: usize,
        out_channels: usize,
        options: &LinearOptions,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("in_channels", in_channels), ("out_channels", out_channels)])?;
        let operator = Arc::new(ops::mv_linear(algebra, options)?);
        choices::note_algebra(&vb, algebra);
        let init = normal(1.0 / (in_channels as f64).sqrt());
        let weight = if options.per_grade {
            let shape = (out_channels, in_channels, algebra.grade_count());
            vb.get_with_hints(shape, "weight", init)?
        } else {
            vb.get_with_hints((out_channels, in_channels), "weight", init)?
        };
        let bias = match options.bias {
            Bias::None => None,
            _ => Some(vb.get_with_hints((1, out_channels, 1), "bias", Init::Const(0.0))?),
        };
        Ok(Self {
            operator,
            weight,
            bias,
        })
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[1, out, 1]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The core operator.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The layer in a network, on a value `[blades, rows, in]`.
    pub(crate) fn describe(
        &self,
        network: &mut Description,
        x: Value,
    ) -> std::result::Result<Value, Error> {
        let shape = self.weight.dims().to_vec();
        let bias = self.bias.as_ref().map(|bias| (bias, vec![shape[0]]));
        let mut parameters = vec![(&self.weight, shape)];
        parameters.extend(bias);
        network.operator(&self.operator, &[x], &parameters)
    }
}

impl Module for MVLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let out_channels = [self.weight.dim(0)?];
        let mut arguments = vec![Argument::whole(x), Argument::whole(&self.weight)];
        if let Some(bias) = &self.bias {
            arguments.push(Argument::shaped(bias, &out_channels));
        }
        Ok(node::apply(&self.operator, &arguments)?)
    }
}
