//! The operators of a plan on a GPU, and the packing of their weights.

use std::sync::Arc;

use flashcliff::cuda::{self, Dtypes, Packing};
use flashcliff::{Device, Dtype, Pass};

use super::super::plan::{Node, Plan, Wanted, Work};
use super::beside::Line;
use crate::Error;
use crate::precision;

/// The operators of the nodes of a plan.
#[derive(Debug)]
pub(super) struct Operators {
    /// For each node its operator on the device, and the number of the operator in the packing.
    of_nodes: Vec<Option<(cuda::Operator, usize)>>,
    /// The packing of the weights of all operators.
    pub(super) packing: Arc<Packing>,
    /// For each parameter the input whose gradient the backward pass leaves in parts, if it is one.
    pub(super) left: Vec<Option<Left>>,
    /// For each node the number of elements that its forward pass saves.
    pub(super) saved: Vec<usize>,
}

/// An input of an operator whose gradient is added up later.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub(super) node: usize,
    /// The number of the operator of the node.
    pub(super) operator: usize,
    pub(super) input: usize,
    pub(super) shape: Vec<usize>,
}

impl Operators {
    /// The operators of a plan, with the types of features and of the model.
    pub(super) fn new(plan: &Plan, library: &Device, dtypes: [Dtype; 2]) -> Result<Self, Error> {
        let (mut of_nodes, mut saved, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for node in &plan.nodes {
            let Work::Operator(operator, dims) = &node.work else {
                of_nodes.push(None);
                saved.push(0);
                continue;
            };
            let operator = operator
                .on_cuda(library)?
                .with_precision(precision::of_operators());
            let dtypes = types(dtypes, plan, node);
            saved.push(operator.saved_len(dims, dtypes));
            of_nodes.push(Some((operator.clone(), members.len())));
            members.push((operator, *dims, dtypes));
        }
        let packing = Packing::new(library, members)?;
        Ok(Self {
            left: left(plan, &packing, &of_nodes),
            packing: Arc::new(packing),
            of_nodes,
            saved,
        })
    }

    /// The operator of a node, and its number.
    pub(super) fn of(&self, node: usize) -> Option<(&cuda::Operator, usize)> {
        let own = self.of_nodes[node].as_ref();
        own.map(|(operator, number)| (operator, *number))
    }

    /// The number of the operator of a node.
    pub(super) fn number(&self, node: usize) -> Option<usize> {
        self.of(node).map(|(_, number)| number)
    }

    /// The bytes of workspace of what is launched on a line.
    pub(super) fn workspace_bytes(&self, plan: &Plan, line: Line) -> Result<usize, Error> {
        let mut bytes = 0;
        for node in 0..plan.nodes.len() {
            let Some(number) = self.number(node) else {
                continue;
            };
            let forks = [plan.forks_forward(node), plan.forks_backward(node)];
            for (pass, forks) in [Pass::Forward, Pass::Backward].into_iter().zip(forks) {
                if line == Line::Main || forks {
                    bytes = bytes.max(self.packing.workspace_bytes(number, pass)?);
                }
            }
        }
        Ok(bytes)
    }
}

/// For each parameter the input of an operator whose gradient is left in parts, if it is one.
fn left(
    plan: &Plan,
    packing: &Packing,
    of_nodes: &[Option<(cuda::Operator, usize)>],
) -> Vec<Option<Left>> {
    let mut all = vec![None; plan.parameters.len()];
    for (node, wanted) in plan.wanted.iter().enumerate() {
        let Some((_, operator)) = of_nodes[node] else {
            continue;
        };
        for (input, wanted) in wanted.iter().enumerate() {
            if let Wanted::Parameter(parameter) = *wanted
                && packing.leaves_parts(operator, input)
            {
                let shape = plan.nodes[node].inputs[input].shape.clone();
                all[parameter] = Some(Left {
                    node,
                    operator,
                    input,
                    shape,
                });
            }
        }
    }
    all
}

/// The types of an operator's tensors, with those of features and of the model.
pub(super) fn types(dtypes: [Dtype; 2], plan: &Plan, node: &Node) -> Dtypes {
    Dtypes {
        lanes: dtypes[usize::from(plan.values[node.output.value.0].wide)],
        params: dtypes[1],
    }
}
