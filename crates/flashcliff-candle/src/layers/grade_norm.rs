//! CGENN's learned normalisation per grade.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::{Algebra, Operator, ops};
use flashcliff_network::Value;

use super::at_least_one;
use crate::Error;
use crate::choices;
use crate::objective::description::Description;
use crate::op::node::{self, Argument};

/// `y_g = x_g / (sigmoid(a_g) (|x_g| - 1) + 1 + 1e-6)`, with the smooth norm `|x_g| = (q(x_g)^2 +
/// 1e-16)^(1/4)`.
///
/// The parameter `a` `[C, G]` moves each grade between no normalisation and full normalisation.
///
/// Source: CGENN, `NormalizationLayer`.
#[derive(Debug, Clone)]
pub struct GradeNorm {
    operator: Arc<Operator>,
    a: Tensor,
}

impl GradeNorm {
    /// A layer for `channels` channels whose parameter starts at `init`. CGENN starts at 0, which is half way.
    ///
    /// # Errors
    /// [`Error::Option`] without channels; the errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        channels: usize,
        init: f64,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("channels", channels)])?;
        let operator = Arc::new(ops::grade_norm(algebra)?);
        choices::note_algebra(&vb, algebra);
        let shape = (channels, algebra.grade_count());
        let a = vb.get_with_hints(shape, "a", Init::Const(init))?;
        Ok(Self { operator, a })
    }
}

impl GradeNorm {
    /// The layer in a network, on a value `[blades, rows, C]`.
    pub(crate) fn describe(
        &self,
        network: &mut Description,
        x: Value,
    ) -> std::result::Result<Value, Error> {
        let shape = self.a.dims().to_vec();
        network.operator(&self.operator, &[x], &[(&self.a, shape)])
    }
}

impl Module for GradeNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let arguments = [Argument::whole(x), Argument::whole(&self.a)];
        Ok(node::apply(&self.operator, &arguments)?)
    }
}
