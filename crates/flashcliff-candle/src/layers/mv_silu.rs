//! CGENN's gate per grade.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::{Algebra, Invariant, Operator, ops};
use flashcliff_network::Value;

use super::at_least_one;
use crate::Error;
use crate::choices::{self, INVARIANT};
use crate::objective::description::Description;
use crate::op::node::{self, Argument};

/// `y_g = sigmoid(a_g u_g + b_g) x_g`. `u_0` is the scalar; the other `u_g` are `q(x_g)` ([`Invariant::Mag2`]) or its
/// smooth norm ([`Invariant::Norm`]).
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `a` | `[1, C, G]` | 1 |
/// | `b` | `[1, C, G]` | 0 |
///
/// Source: CGENN, `MVSiLU`.
#[derive(Debug, Clone)]
pub struct MVSiLU {
    operator: Arc<Operator>,
    a: Tensor,
    b: Tensor,
}

impl MVSiLU {
    /// A layer for `channels` channels.
    ///
    /// # Errors
    /// [`Error::Option`] without channels; the errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        channels: usize,
        invariant: Invariant,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("channels", channels)])?;
        let operator = Arc::new(ops::mv_silu(algebra, invariant)?);
        choices::note_algebra(&vb, algebra);
        choices::note(&vb, INVARIANT, invariant.name());
        let shape = (1, channels, algebra.grade_count());
        let a = vb.get_with_hints(shape, "a", Init::Const(1.0))?;
        let b = vb.get_with_hints(shape, "b", Init::Const(0.0))?;
        Ok(Self { operator, a, b })
    }
}

impl MVSiLU {
    /// The layer in a network, on a value `[blades, rows, C]`.
    pub(crate) fn describe(
        &self,
        network: &mut Description,
        x: Value,
    ) -> std::result::Result<Value, Error> {
        let shape = self.a.dims()[1..].to_vec();
        let parameters = [&self.a, &self.b].map(|tensor| (tensor, shape.clone()));
        network.operator(&self.operator, &[x], &parameters)
    }
}

impl Module for MVSiLU {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let arguments = [
            Argument::whole(x),
            Argument::shaped(&self.a, &self.a.dims()[1..]),
            Argument::shaped(&self.b, &self.b.dims()[1..]),
        ];
        Ok(node::apply(&self.operator, &arguments)?)
    }
}
