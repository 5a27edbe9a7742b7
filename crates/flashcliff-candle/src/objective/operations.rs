//! The operations of a plan, as a timeline reports them.

use std::sync::Arc;

use flashcliff::{Dtype, Pass};

use super::plan::{Activation, Node, Plan, Wanted, Work};
use crate::op::blade_norm::BladeNorm;
use crate::timeline::{self, Operation, Sizes};

/// The operations of both passes of a plan.
#[derive(Debug)]
pub(super) struct Operations {
    /// For each node its forward pass.
    forward: Vec<Arc<Operation>>,
    /// For each node its backward pass, if it has work.
    backward: Vec<Option<Arc<Operation>>>,
    /// The error, with the gradient of the prediction.
    error: Arc<Operation>,
}

impl Operations {
    /// The operations of a plan, with the type of its features and that of the model.
    pub(super) fn new(plan: &Plan, dtypes: [Dtype; 2]) -> Self {
        let of = |(at, node): (usize, &Node), pass| {
            let wanted = plan.wanted[at].iter();
            let wanted: Vec<bool> = wanted.map(|&wanted| wanted != Wanted::No).collect();
            Arc::new(operation(plan, dtypes, node, pass, &wanted))
        };
        let nodes = || plan.nodes.iter().enumerate();
        let has_work = |at: usize| plan.wanted[at].iter().any(|&wanted| wanted != Wanted::No);
        let backward = |(at, node)| has_work(at).then(|| of((at, node), Pass::Backward));
        let rows = vec![plan.rows];
        let shapes = [rows.clone(), rows.clone()];
        let error = Operation::of_function(
            "squared_error",
            &shapes,
            &rows,
            dtypes[1],
            Pass::Forward,
            &[],
        );
        Self {
            forward: nodes().map(|node| of(node, Pass::Forward)).collect(),
            backward: nodes().map(backward).collect(),
            // A difference, its square, a sum and the gradient of each row.
            error: Arc::new(error.with_flops(4 * plan.rows)),
        }
    }
}

/// Reports of both passes to the timeline of the calling thread, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports<'a>(pub(super) Option<&'a Operations>);

impl Reports<'_> {
    /// The pass of a node begins.
    pub(super) fn node(self, node: usize, pass: Pass) {
        let operation = self.0.and_then(|operations| match pass {
            Pass::Forward => Some(&operations.forward[node]),
            Pass::Backward => operations.backward[node].as_ref(),
        });
        if let Some(operation) = operation {
            timeline::begin(|| operation.clone());
        }
    }

    /// The error begins.
    pub(super) fn error(self) {
        if let Some(operations) = self.0 {
            timeline::begin(|| operations.error.clone());
        }
    }

    /// All nodes are done.
    pub(super) fn end(self) {
        if self.0.is_some() {
            timeline::begin(Operation::rest);
        }
    }
}

fn operation(
    plan: &Plan,
    dtypes: [Dtype; 2],
    node: &Node,
    pass: Pass,
    wanted: &[bool],
) -> Operation {
    let output = &plan.values[node.output.value.0];
    let lanes = dtypes[usize::from(output.wide)];
    let of_function = |name: &str, flops: [usize; 2]| {
        let shapes: Vec<Vec<usize>> = node.inputs.iter().map(|x| x.shape.clone()).collect();
        let flops = match pass {
            Pass::Forward => flops[0],
            Pass::Backward => flops[1],
        };
        let output = &node.output.shape;
        Operation::of_function(name, &shapes, output, lanes, pass, wanted).with_flops(flops)
    };
    let (inputs, outputs) = (node.inputs[0].len(), node.output.len());
    let operation = match &node.work {
        Work::Operator(operator, dims) => {
            let sizes = Sizes {
                lanes,
                params: dtypes[1],
            };
            Operation::of_operator(operator, dims, sizes, pass, wanted)
        }
        Work::Points => of_function("points", [0, 0]),
        Work::Norm => {
            let passes = [Pass::Forward, Pass::Backward];
            let flops = passes.map(|pass| BladeNorm::flops(inputs, outputs, pass));
            of_function("blade_norm", flops)
        }
        // An exponential, a sum, a quotient and a product; three more operations of the slope and one product.
        Work::Activation(Activation::Silu) => of_function("silu", [4 * inputs, 8 * inputs]),
        Work::Activation(Activation::Relu) => of_function("relu", [inputs, inputs]),
        // A sum and a product of each element; a product for each of two gradients.
        Work::ScaledSum(_) => of_function("scaled_sum", [2 * outputs, 2 * outputs]),
        Work::Blade(_) => of_function("blade", [0, 0]),
        Work::ReverseAxes => of_function("reverse_axes", [0, 0]),
    };
    // A value may have more room than its operation fills.
    let room = match pass {
        Pass::Forward => lanes.bytes() * (output.len - outputs),
        Pass::Backward => 0,
    };
    Operation {
        output_bytes: operation.output_bytes + room,
        ..operation
    }
}
