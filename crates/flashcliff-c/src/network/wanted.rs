//! The gradients that a plan has, among the gradients of all inputs and parameters.

use flashcliff::host_memory::Span;
use flashcliff_network::{Plan, Value};

use super::tensors::{Gradients, Tensor, check_count, spans};
use crate::status::Failure;

/// The gradients of a plan of two stages.
pub(super) struct Wanted {
    /// The gradients of the outputs.
    pub(super) of_outputs: Vec<Tensor>,
    /// The gradients that are wanted.
    pub(super) gradients: Vec<Tensor>,
    /// Their numbers among the gradients of all inputs and parameters.
    pub(super) numbers: Vec<usize>,
    /// The number of inputs and parameters.
    count: usize,
}

impl Wanted {
    /// The gradients of a plan for outputs. `wanted` says for each input and each parameter whether there is one.
    pub(super) fn new(plan: &Plan, outputs: &[(String, Value)], wanted: &[bool]) -> Self {
        let network = plan.network();
        // The gradients of outputs are the last inputs of the network.
        let ends = network.inputs().len() - outputs.len();
        let names = network.inputs()[..ends].iter().chain(network.parameters());
        let names: Vec<&str> = names.map(|&value| network.name(value)).collect();
        let count = wanted.len();
        let numbers: Vec<usize> = (0..count).filter(|&at| wanted[at]).collect();
        let gradient =
            |name: &str, value: Value| Tensor::new(plan, &format!("the gradient of {name}"), value);
        let seeds = outputs.iter().zip(&network.inputs()[ends..]);
        let results = numbers.iter().zip(&plan.outputs()[outputs.len()..]);
        Self {
            of_outputs: seeds
                .map(|((name, _), &value)| gradient(name, value))
                .collect(),
            gradients: results
                .map(|(&at, &value)| gradient(names[at], value))
                .collect(),
            numbers,
            count,
        }
    }

    /// Checks that there are the gradients that were planned.
    pub(super) fn check(&self, given: &Gradients<'_>) -> Result<(), Failure> {
        let (outputs, grads) = (given.outputs, given.grads);
        check_count("gradients of outputs", self.of_outputs.len(), outputs.len())?;
        check_count(
            "gradients of inputs and parameters",
            self.count,
            grads.len(),
        )?;
        let mut others = (0..self.count).filter(|at| !self.numbers.contains(at));
        match others.find(|&at| !grads[at].is_null()) {
            None => Ok(()),
            Some(at) => Err(Failure::Argument(format!(
                "gradient {at}: expected NULL, because it was planned without, got an address"
            ))),
        }
    }

    /// The memory of gradients, with elements of a size.
    pub(super) fn spans<'a>(
        &'a self,
        call: &'a str,
        given: &'a Gradients<'_>,
        size: usize,
    ) -> impl Iterator<Item = Result<Span<'a>, flashcliff::Error>> + Clone {
        let outputs = given.outputs.iter().map(|start| start.addr());
        let grads = self.numbers.iter().map(|&at| given.grads[at].addr());
        let outputs = spans(call, &self.of_outputs, outputs, (size, false));
        outputs.chain(spans(call, &self.gradients, grads, (size, true)))
    }
}
