//! CGENN's norm over channels.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::{Algebra, Operator, ops};

use super::at_least_one;
use crate::Error;
use crate::choices;
use crate::op::node::{self, Argument};

/// `y = a x / (mean_c |x_c| + 1e-6)`, with the smooth norm of the whole multivector.
///
/// The parameter `a` is `[1, C]` and starts at 1.
///
/// Source: CGENN, `MVLayerNorm`.
#[derive(Debug, Clone)]
pub struct MVLayerNorm {
    operator: Arc<Operator>,
    a: Tensor,
}

impl MVLayerNorm {
    /// A layer for `channels` channels.
    ///
    /// # Errors
    /// [`Error::Option`] without channels; the errors of the core and of the builder.
    pub fn new(
        algebra: Algebra,
        channels: usize,
        vb: VarBuilder,
    ) -> std::result::Result<Self, Error> {
        at_least_one([("channels", channels)])?;
        let operator = Arc::new(ops::mv_layer_norm(algebra)?);
        choices::note_algebra(&vb, algebra);
        let a = vb.get_with_hints((1, channels), "a", Init::Const(1.0))?;
        Ok(Self { operator, a })
    }
}

impl Module for MVLayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let shape = [self.a.elem_count(), 1];
        let arguments = [Argument::whole(x), Argument::shaped(&self.a, &shape)];
        Ok(node::apply(&self.operator, &arguments)?)
    }
}
