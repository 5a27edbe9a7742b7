//! The functions that are composed of nodes.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::OnGpu;
use crate::Error;
use crate::op::blade_norm::BladeNorm;
use crate::op::embed::EmbedVectors;
use crate::op::function::{Array, Function};
use crate::op::node::{self, Argument};
use crate::op::steerable::Steerable;
use crate::op::trunk::Trunk;

impl OnGpu for EmbedVectors {
    fn apply_on_gpu(
        self: &Arc<Self>,
        arguments: &[Argument],
    ) -> std::result::Result<Tensor, Error> {
        let shape = output_shape(&**self, arguments)?;
        let (vectors, bias) = (arguments[0].seen()?, arguments[1].seen()?);
        let scalars = bias.broadcast_as((1, shape[1], shape[2]))?;
        let rest = self.blades - 1 - self.vectors;
        let mut parts = vec![scalars, vectors];
        if rest > 0 {
            let (dtype, device) = (parts[1].dtype(), parts[1].device());
            parts.push(Tensor::zeros((rest, shape[1], shape[2]), dtype, device)?);
        }
        Ok(Tensor::cat(&parts, 0)?)
    }
}

impl OnGpu for BladeNorm {
    fn apply_on_gpu(
        self: &Arc<Self>,
        arguments: &[Argument],
    ) -> std::result::Result<Tensor, Error> {
        output_shape(&**self, arguments)?;
        Ok(blade_norm(&arguments[0].seen()?)?)
    }
}

/// If a sum is 0, the root of 1 is taken instead: the slope at 0 would be infinite, and the gradient not a number. The
/// sum is compared with a tensor, since candle would copy a number from the host.
fn blade_norm(x: &Tensor) -> Result<Tensor> {
    let squares = x.sqr()?.sum(0)?;
    let is_zero = squares.eq(&squares.zeros_like()?)?;
    let root = is_zero
        .where_cond(&squares.ones_like()?, &squares)?
        .sqrt()?;
    is_zero.where_cond(&root.zeros_like()?, &root)
}

impl OnGpu for Steerable {
    fn apply_on_gpu(
        self: &Arc<Self>,
        arguments: &[Argument],
    ) -> std::result::Result<Tensor, Error> {
        let right = node::apply(&self.right, &arguments[..2])?;
        let at = self.left_at();
        let left = match &self.left {
            None => None,
            Some(left) => {
                let arguments = [arguments[0], arguments[at], arguments[at + 1]];
                Some(node::apply(left, &arguments)?)
            }
        };
        let mut product = vec![arguments[0], Argument::whole(&right)];
        product.extend(&arguments[2..at]);
        product.extend(left.as_ref().map(Argument::whole));
        node::apply(&self.product, &product)
    }
}

impl OnGpu for Trunk {
    fn apply_on_gpu(
        self: &Arc<Self>,
        arguments: &[Argument],
    ) -> std::result::Result<Tensor, Error> {
        let (head, mut rest) = arguments.split_at(Trunk::HEAD);
        let mut x = node::apply(&self.embedding, head)?;
        for layer in &self.layers {
            let (parameters, after) = rest.split_at(layer.parameter_count());
            let mut inputs = vec![Argument::whole(&x)];
            inputs.extend(parameters);
            x = node::apply(layer, &inputs)?;
            rest = after;
        }
        node::apply(&Arc::new(BladeNorm), &[Argument::whole(&x)])
    }
}

/// The shape of the result, after the function's own check of the inputs' shapes.
pub(super) fn output_shape(
    function: &impl Function<f32>,
    arguments: &[Argument],
) -> std::result::Result<Vec<usize>, Error> {
    let shapes = arguments.iter().map(Argument::shape);
    let arrays: Vec<Array<f32>> = shapes.map(|shape| Array { data: &[], shape }).collect();
    function.output_shape(&arrays)
}

#[cfg(test)]
pub(super) mod tests;
