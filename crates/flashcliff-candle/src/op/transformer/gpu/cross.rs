//! The node of attention to another set.

use std::sync::Arc;

use candle_core::{DType, Result, Tensor};
use flashcliff::{Dtype, Pass};

use super::Kernels;
use super::attention::Attended;
use super::function::{owned, without_graph};
use super::layout::Layout;
use super::stages::{Given, Gradients};
use crate::Error;
use crate::op::node::{self, Argument, Backward};
use crate::op::once::Gradient;
use crate::op::transformer::cross::{Crossing, NAME};
use crate::timeline::{self, Operation};

/// Applies attention to tensors on the device of the kernels, differentiably.
pub(in crate::op::transformer) fn apply<K: Kernels>(
    crossing: &Arc<Crossing>,
    kernels: K,
    arguments: &[Argument],
) -> std::result::Result<Tensor, Error> {
    let (inputs, shapes) = node::lay_out(arguments)?;
    let sizes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let shape = crossing.check(&sizes)?;
    let items = [shapes[0][1], shapes[1][1]];
    let seen = without_graph(&inputs, &shapes)?;
    let masks = usize::from(crossing.has_mask());
    let mask = seen[2..2 + masks].first();
    let layout = Layout::new(&crossing.scope, shape[0], items, mask, &seen[0])?;
    let sides = [flat(&seen[0])?, flat(&seen[1])?];
    let tracked = || inputs.iter().map(Tensor::track_op).collect::<Vec<_>>();
    let (output, attended) = timeline::within(
        || {
            operation(
                crossing,
                &inputs[0],
                &shapes,
                &shape,
                Pass::Forward,
                &tracked(),
            )
        },
        || {
            let log_weights = seen[2 + masks..].first();
            let sides = [&sides[0], &sides[1]];
            let given = Given {
                kernels: &kernels,
                layout: &layout,
                reference: None,
                extra: None,
                draw: None,
            };
            crossing.attention.on_gpu(&given, &sides, log_weights)
        },
    )?;
    let backward = OnGpu {
        crossing: crossing.clone(),
        shapes,
        output: shape.clone(),
        kernels,
        layout,
        sides,
        attended,
    };
    node::record(inputs, owned(&output)?, shape, backward)
}

/// Tokens as rows.
fn flat(tokens: &Tensor) -> Result<Tensor> {
    tokens.flatten(0, 1)
}

fn operation(
    crossing: &Crossing,
    x: &Tensor,
    shapes: &[Vec<usize>],
    output: &[usize],
    pass: Pass,
    wanted: &[bool],
) -> Arc<Operation> {
    // Kernels serve no other type.
    let dtype = match x.dtype() {
        DType::F64 => Dtype::F64,
        _ => Dtype::F32,
    };
    let base = Operation::of_function(NAME, shapes, output, dtype, pass, wanted);
    Arc::new(base.with_flops(crossing.flops(shapes, pass)))
}

/// Attention that has run.
struct OnGpu<K> {
    crossing: Arc<Crossing>,
    kernels: K,
    /// The shapes of all inputs.
    shapes: Vec<Vec<usize>>,
    output: Vec<usize>,
    layout: Layout,
    sides: [Tensor; 2],
    attended: Attended,
}

impl<K: Kernels> Backward for OnGpu<K> {
    fn name(&self) -> &str {
        NAME
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        _: &Tensor,
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Gradient>>> {
        let first = 2 + usize::from(self.crossing.has_mask());
        let mut to = Gradients {
            wants_input: true,
            wants_parameters: tracked.iter().any(|&at| at >= first),
            wants_reference: false,
            wants_extra: false,
            parameters: vec![None],
            reference: None,
            extra: None,
        };
        let g = flat(&grad_output.contiguous()?)?;
        let wanted = || {
            let wanted = (0..inputs.len()).map(|at| tracked.contains(&at));
            wanted.collect::<Vec<_>>()
        };
        let of_sides = timeline::within(
            || {
                let (crossing, x) = (&self.crossing, &inputs[0]);
                let (shapes, output) = (&self.shapes, &self.output);
                operation(crossing, x, shapes, output, Pass::Backward, &wanted())
            },
            || {
                let sides = [&self.sides[0], &self.sides[1]];
                let given = Given {
                    kernels: &self.kernels,
                    layout: &self.layout,
                    reference: None,
                    extra: None,
                    draw: None,
                };
                let (attention, attended) = (&self.crossing.attention, &self.attended);
                attention.gradient_on_gpu(&given, &sides, attended, &g, 0, &mut to)
            },
        )?;
        let found = tracked.iter().map(|&at| {
            let found = match at {
                0 | 1 => Some(of_sides[at].clone()),
                _ => to.parameters[0].take(),
            };
            let shape = inputs[at].dims();
            let found = found.map(|found| found.reshape(shape)).transpose()?;
            Ok(found.map(Gradient::Found))
        });
        found.collect()
    }
}
