//! The node of stages that have kernels.

use std::sync::Arc;

use candle_core::{DType, Result, Storage, Tensor};
use flashcliff::{Dtype, Pass};

use super::Kernels;
use super::layout::Layout;
use super::stages::{self, Given, Gradients, Ran};
use crate::Error;
use crate::op::node::{self, Argument, Backward};
use crate::op::once::Gradient;
use crate::op::transformer::function::Stages;
use crate::timeline::{self, Operation};

/// Applies stages to tensors on the device of the kernels, differentiably.
pub(in crate::op::transformer) fn apply<K: Kernels>(
    stages: &Arc<Stages>,
    kernels: K,
    arguments: &[Argument],
) -> std::result::Result<Tensor, Error> {
    let (inputs, shapes) = node::lay_out(arguments)?;
    let sizes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let shape = stages.check(&sizes)?;
    let (samples, items) = (shape[0], shape[1]);
    let seen = without_graph(&inputs, &shapes)?;
    let rows = samples * items;
    let reference = match stages.has_joins {
        true => Some(seen[1].reshape((rows, 1))?),
        false => None,
    };
    let extra = match (stages.extra_input(), stages.extra()) {
        (Some(at), Some(extra)) => Some(seen[at].reshape((rows, stages.geometry.width(extra)))?),
        _ => None,
    };
    let mask = stages.mask_input().map(|at| &seen[at]);
    let layout = Layout::new(&stages.scope, samples, [items; 2], mask, &seen[0])?;
    let given = Given {
        kernels: &kernels,
        layout: &layout,
        reference: reference.as_ref(),
        extra: extra.as_ref(),
        draw: stages.draw.as_ref(),
    };
    let x = seen[0].reshape((rows, stages.geometry.width(stages.input())))?;
    let parameters = &seen[stages.first_parameter()..];
    let tracked = || inputs.iter().map(Tensor::track_op).collect::<Vec<_>>();
    let (output, ran) = timeline::within(
        || operation(stages, &inputs[0], &shapes, Pass::Forward, &tracked()),
        || stages::forward(&given, &stages.stages, x, parameters),
    )?;
    let backward = OnGpu {
        stages: stages.clone(),
        shapes,
        kernels,
        rows,
        layout,
        reference,
        extra,
        ran,
    };
    node::record(inputs, owned(&output)?, shape, backward)
}

/// A pass of stages for a timeline.
fn operation(
    stages: &Stages,
    x: &Tensor,
    shapes: &[Vec<usize>],
    pass: Pass,
    wanted: &[bool],
) -> Arc<Operation> {
    // Kernels serve no other type.
    let dtype = match x.dtype() {
        DType::F64 => Dtype::F64,
        _ => Dtype::F32,
    };
    Arc::new(stages.described(shapes, dtype, pass, wanted))
}

/// The arguments of a node in their shapes, apart from the graph that they came by.
pub(super) fn without_graph(inputs: &[Tensor], shapes: &[Vec<usize>]) -> Result<Vec<Tensor>> {
    let given = inputs.iter().zip(shapes);
    given
        .map(|(input, shape)| input.detach().reshape(shape.as_slice()))
        .collect()
}

/// The elements of a tensor in memory that belongs to nothing else.
pub(super) fn owned(tensor: &Tensor) -> Result<Storage> {
    let (storage, layout) = tensor.storage_and_layout();
    storage.try_clone(layout)
}

/// Stages that have run.
struct OnGpu<K> {
    stages: Arc<Stages>,
    kernels: K,
    /// The shapes of all inputs.
    shapes: Vec<Vec<usize>>,
    rows: usize,
    layout: Layout,
    reference: Option<Tensor>,
    extra: Option<Tensor>,
    ran: Vec<Ran>,
}

impl<K: Kernels> Backward for OnGpu<K> {
    fn name(&self) -> &str {
        self.stages.name
    }

    fn gradients(
        &self,
        inputs: &[Tensor],
        tracked: &[usize],
        _: &Tensor,
        grad_output: &Tensor,
    ) -> Result<Vec<Option<Gradient>>> {
        let first = self.stages.first_parameter();
        let extra = self.stages.extra_input();
        let given = Given {
            kernels: &self.kernels,
            layout: &self.layout,
            reference: self.reference.as_ref(),
            extra: self.extra.as_ref(),
            draw: self.stages.draw.as_ref(),
        };
        let mut to = Gradients {
            wants_input: tracked.contains(&0),
            wants_parameters: tracked.iter().any(|&at| at >= first),
            wants_reference: self.stages.has_joins && tracked.contains(&1),
            wants_extra: extra.is_some_and(|at| tracked.contains(&at)),
            parameters: vec![None; self.stages.shapes.len()],
            reference: None,
            extra: None,
        };
        let g = grad_output.contiguous()?;
        let width = self.stages.geometry.width(self.stages.output());
        let g = g.reshape((self.rows, width))?;
        let wanted = || {
            (0..inputs.len())
                .map(|at| tracked.contains(&at))
                .collect::<Vec<_>>()
        };
        let of_x = timeline::within(
            || {
                operation(
                    &self.stages,
                    &inputs[0],
                    &self.shapes,
                    Pass::Backward,
                    &wanted(),
                )
            },
            || stages::backward(&given, &self.stages.stages, &self.ran, &g, None, 0, &mut to),
        )?;
        let found = tracked.iter().map(|&at| {
            let found = match at {
                0 => of_x.clone(),
                _ if Some(at) == extra => to.extra.take(),
                _ if at < first => to.reference.take(),
                _ => to.parameters[at - first].take(),
            };
            let shape = inputs[at].dims();
            let found = match found {
                // A reshape of a transposed tensor would copy it.
                Some(found) if found.dims() != shape => Some(found.reshape(shape)?),
                found => found,
            };
            Ok(found.map(Gradient::Found))
        });
        found.collect()
    }
}
