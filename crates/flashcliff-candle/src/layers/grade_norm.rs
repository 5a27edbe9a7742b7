//! CGENN's learned normalisation per grade.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::{Algebra, Operator, ops};

use crate::Error;
use crate::choices;
use crate::objective::plan::{Builder, ValueId};
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
    /// The errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        channels: usize,
        init: f64,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let operator = Arc::new(ops::grade_norm(algebra)?);
        choices::note_algebra(&vb, algebra);
        let shape = (channels, algebra.grade_count());
        let a = vb.get_with_hints(shape, "a", Init::Const(init))?;
        Ok(Self { operator, a })
    }
}

impl GradeNorm {
    /// The layer in a plan, on a value `[blades, rows, C]`.
    pub(crate) fn plan(
        &self,
        plan: &mut Builder,
        x: ValueId,
    ) -> std::result::Result<ValueId, Error> {
        let shape = self.a.dims().to_vec();
        let lanes = plan.lanes(self.operator.algebra(), shape[0]);
        plan.operator(&self.operator, &[(x, lanes)], &[(&self.a, shape)], 0)
    }
}

impl Module for GradeNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let arguments = [Argument::whole(x), Argument::whole(&self.a)];
        Ok(node::apply(&self.operator, &arguments)?)
    }
}
