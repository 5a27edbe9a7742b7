//! The operators of a plan on a GPU, and the packing of their weights.

use std::collections::HashMap;
use std::sync::Arc;

use flashcliff::cuda::{self, Dtypes, MatmulPrecision, Packing};
use flashcliff::{Device, Pass};

use super::beside::Line;
use crate::network::{Node, parameters};
use crate::plan::Plan;
use crate::work::{Gradient, Work};
use crate::{Error, Value};

/// The operators of the nodes of a stage.
#[derive(Debug)]
pub(super) struct Operators {
    /// For each node of the forward pass that calls of the stage stand for, the number of its operator in the packing.
    numbers: HashMap<usize, usize>,
    /// For each operator of the packing its node.
    nodes: Vec<usize>,
    /// The operators of which nothing is packed, by their nodes: operators with several results, and operators whose
    /// parameters other calls compute.
    alone: HashMap<usize, cuda::Operator>,
    /// The packing of the weights of all operators.
    pub(super) packing: Arc<Packing>,
}

impl Operators {
    pub(super) fn new(
        plan: &Plan,
        stage: usize,
        device: &Device,
        precision: MatmulPrecision,
    ) -> Result<Self, Error> {
        let (mut numbers, mut nodes, mut members) = (HashMap::new(), Vec::new(), Vec::new());
        let mut alone = HashMap::new();
        for call in plan.calls(stage) {
            let origin = plan.node(call).origin;
            let node = &plan.network().nodes[origin];
            let (Work::Operator(operator), Some(dims)) = (&node.work, plan.dims(call)) else {
                continue;
            };
            if numbers.contains_key(&origin) || alone.contains_key(&origin) {
                continue;
            }
            let own = operator.on_cuda(device)?.with_precision(precision);
            if operator.outputs().len() > 1 || !plan.network().has_own_weights(node, operator) {
                alone.insert(origin, own);
                continue;
            }
            numbers.insert(origin, members.len());
            nodes.push(origin);
            let dtypes = dtypes_of(plan, node, operator)?;
            members.push((own, *dims, dtypes));
        }
        Ok(Self {
            numbers,
            nodes,
            alone,
            packing: Arc::new(Packing::joining(device, members)?),
        })
    }

    /// The number of the operator of a call, also of the one whose gradient is computed.
    pub(super) fn number(&self, plan: &Plan, call: usize) -> Option<usize> {
        self.numbers.get(&plan.node(call).origin).copied()
    }

    /// The operator of a node of which nothing is packed.
    pub(super) fn alone(&self, node: usize) -> Option<&cuda::Operator> {
        self.alone.get(&node)
    }

    /// The bytes of workspace that a call needs.
    fn workspace_of(&self, plan: &Plan, call: usize) -> Result<usize, Error> {
        let node = plan.node(call);
        let pass = match node.work {
            Work::Gradient(_) => Pass::Backward,
            _ => Pass::Forward,
        };
        if let Some((operator, dims)) = self.alone(node.origin).zip(plan.dims(call)) {
            let dtypes = dtypes_of(plan, node, operator.operator())?;
            return Ok(match operator.operator().outputs().len() {
                1 => operator.workspace_bytes(dims, pass, dtypes)?,
                _ => operator.run_workspace_bytes(dims, dtypes)?,
            });
        }
        let Some(number) = self.number(plan, call) else {
            return Ok(0);
        };
        Ok(self.packing.workspace_bytes(number, pass)?)
    }

    /// The bytes of workspace of what is launched on each line in a stage.
    pub(super) fn workspace_bytes(&self, plan: &Plan, stage: usize) -> Result<[usize; 2], Error> {
        let mut bytes = [0; 2];
        for call in plan.calls(stage) {
            let needed = self.workspace_of(plan, call)?;
            bytes[Line::Main.number()] = bytes[Line::Main.number()].max(needed);
            if plan.forks(call) {
                bytes[Line::Beside.number()] = bytes[Line::Beside.number()].max(needed);
            }
        }
        Ok(bytes)
    }

    /// For each operator its parameters, if they are packed, from a function of their values.
    pub(super) fn weights<'a>(
        &self,
        plan: &Plan,
        value: impl Fn(Value) -> Result<cuda::Tensor<'a>, Error>,
    ) -> Result<Vec<Vec<cuda::Tensor<'a>>>, Error> {
        let nodes = self.nodes.iter().enumerate();
        let own = nodes.map(|(number, &node)| {
            let node = &plan.network().nodes[node];
            match (&node.work, self.packing.packs(number)) {
                (Work::Operator(operator), true) => {
                    parameters(node, operator).map(&value).collect()
                }
                _ => Ok(Vec::new()),
            }
        });
        own.collect()
    }

    /// The operator and the input whose gradient a value is, if the call that computes it leaves the gradient in parts.
    pub(super) fn left(&self, plan: &Plan, call: usize, value: Value) -> Option<(usize, usize)> {
        let node = plan.node(call);
        let Work::Gradient(gradient) = &node.work else {
            return None;
        };
        let number = self.number(plan, call)?;
        let place = node.outputs.iter().position(|output| *output == value)?;
        let input = input_of(gradient, place)?;
        self.packing
            .leaves_parts(number, input)
            .then_some((number, input))
    }
}

/// The types of the operator of a node: the result of one may be a sum of parameters, but one of its inputs has
/// lanes. Parameters that there are none of have the type of the lanes.
fn dtypes_of(plan: &Plan, node: &Node, operator: &flashcliff::Operator) -> Result<Dtypes, Error> {
    let specs = operator.inputs().iter().zip(&node.inputs);
    let lanes = specs.filter(|(spec, _)| !spec.is_parameter());
    let lane = lanes.map(|(_, &input)| input).next();
    let lanes = plan.spot(lane.unwrap_or(node.outputs[0]))?.dtype;
    let has_parameters = parameters(node, operator).next().is_some();
    Ok(Dtypes {
        lanes,
        params: if has_parameters {
            plan.types()[1]
        } else {
            lanes
        },
    })
}

/// The input whose gradient a result of a node is.
fn input_of(gradient: &Gradient, result: usize) -> Option<usize> {
    let wanted = gradient.wanted.iter().enumerate();
    wanted
        .filter(|(_, wanted)| **wanted)
        .nth(result)
        .map(|(input, _)| input)
}
