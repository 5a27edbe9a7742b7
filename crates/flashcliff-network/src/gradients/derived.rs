//! Gradients of gradients: the gradient of an operator is an operator, and so is its gradient.

use std::sync::Arc;

use flashcliff::Operator;

use super::{Back, check_inputs, functions, no_gradient, select};
use crate::Error;
use crate::network::{Axis, Maker, Network, Node, Value};
use crate::work::{Gradient, Work};

impl Back<'_> {
    /// The gradients of the inputs of an operator with several results, from the gradients that its results have.
    pub(super) fn of_results(
        &mut self,
        node: &Node,
        operator: &Operator,
        gradients: &[Option<Value>],
        wanted: &[bool],
    ) -> Result<(), Error> {
        let has: Vec<bool> = gradients.iter().map(Option::is_some).collect();
        let derived = operator.selecting(&has)?.gradient()?;
        self.derived(node, &derived, &node.inputs, gradients, wanted)
    }

    /// The gradients of what a gradient node reads, from the gradients of its results.
    pub(super) fn of_gradient(
        &mut self,
        node: &Node,
        own: &Gradient,
        gradients: &[Option<Value>],
        wanted: &[bool],
    ) -> Result<(), Error> {
        match &*own.of {
            Work::Operator(operator) => {
                // The result and what was saved come after the operands.
                let last = operator.inputs().len() + 2;
                self.of_backward(node, (own, operator, last), gradients)
            }
            work @ (Work::BladeNorm | Work::Activation(_)) => {
                let axes = self.network.shape(node.inputs[0]).unwrap_or_default();
                let operator = functions::operator(work, axes)?;
                let operator = operator.ok_or_else(|| no_gradient(node))?;
                let last = node.inputs.len() - 1;
                self.of_backward(node, (own, &operator, last), gradients)
            }
            // The gradient of the gradient of a linear map is the map itself.
            Work::Points | Work::Blade(_) | Work::ReverseAxes | Work::ScaledSum(_) if wanted[0] => {
                let given = gradients.iter().flatten();
                given
                    .copied()
                    .try_for_each(|given| self.pass_on((*own.of).clone(), &[given], &node.inputs))
            }
            Work::Step(step) => self.of_step(node, own, step, gradients),
            Work::Concatenate(lens) => {
                let mut results = gradients.iter().copied();
                let along = own.wanted.iter();
                let along = along.map(|&wanted| if wanted { results.next()? } else { None });
                let along: Vec<Option<Value>> = along.collect();
                let axes: Vec<_> = lens.iter().map(|&len| vec![Axis::Fixed(len)]).collect();
                let changes = self.network.changes_of_parts((node, own), &along, &axes)?;
                self.pass_on((*own.of).clone(), &changes, &node.inputs)
            }
            _ => Err(no_gradient(node)),
        }
    }

    /// The gradients of what the gradient of an operator reads: the operands, and the gradient of the result, which
    /// is the input with a number. The result and what was saved are functions of the operands.
    fn of_backward(
        &mut self,
        node: &Node,
        (own, operator, of_result): (&Gradient, &Operator, usize),
        gradients: &[Option<Value>],
    ) -> Result<(), Error> {
        let count = operator.inputs().len();
        let mut results = gradients.iter().copied();
        let of_inputs = own.wanted.iter();
        let of_inputs = of_inputs.map(|&wanted| if wanted { results.next()? } else { None });
        let of_inputs: Vec<Option<Value>> = of_inputs.collect();
        let has: Vec<bool> = of_inputs.iter().map(Option::is_some).collect();
        let derived = operator.gradient()?.selecting(&has)?.gradient()?;
        let mut reads = node.inputs[..count].to_vec();
        reads.push(node.inputs[of_result]);
        let wanted: Vec<bool> = reads.iter().map(|read| self.depends[read.0]).collect();
        match wanted.contains(&true) {
            true => self.derived(node, &derived, &reads, &of_inputs, &wanted),
            false => Ok(()),
        }
    }

    /// Adds the node of an operator that computes gradients of values from these values and the gradients that there are.
    fn derived(
        &mut self,
        node: &Node,
        operator: &Operator,
        reads: &[Value],
        gradients: &[Option<Value>],
        wanted: &[bool],
    ) -> Result<(), Error> {
        let operator = operator.selecting(wanted)?;
        let mut inputs: Vec<Value> = reads.iter().map(|&own| self.now(own)).collect();
        inputs.extend(gradients.iter().flatten());
        check_inputs(node, inputs.len())?;
        let made = self
            .network
            .push(Work::Operator(Arc::new(operator)), &inputs)?;
        for (value, made) in select(reads, wanted).into_iter().zip(made) {
            self.network.values[made.0].gradient_of = Some(value);
            self.contribute(value, made)?;
        }
        Ok(())
    }
}

impl Network {
    /// Makes separate sums of gradients that are added where they lie: in what is differentiated next, a value stays as it is.
    pub(super) fn separate_sums(&mut self) {
        let adds = |node: &Node| matches!(&node.work, Work::Gradient(own) if own.adds);
        if !self.nodes.iter().any(adds) {
            return;
        }
        let nodes = std::mem::take(&mut self.nodes);
        let mut moved = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            let number = self.nodes.len();
            moved.push(number);
            node.origin = moved[node.origin];
            let sum = self.separated(&mut node, number);
            self.nodes.push(node);
            self.nodes.extend(sum);
        }
        for (at, node) in self.nodes.iter().enumerate() {
            for output in &node.outputs {
                self.values[output.0].maker = Maker::Node(at);
            }
        }
    }

    /// Takes the sum out of a gradient node with a number, if it has one. The result keeps its number.
    fn separated(&mut self, node: &mut Node, number: usize) -> Option<Node> {
        let Work::Gradient(own) = &mut node.work else {
            return None;
        };
        if !std::mem::replace(&mut own.adds, false) {
            return None;
        }
        let (so_far, sum) = (node.inputs.pop()?, node.outputs[0]);
        let mut info = self.values[sum.0].clone();
        info.name = format!("%{}", self.values.len());
        let alone = Value(self.values.len());
        self.values.push(info);
        node.outputs[0] = alone;
        Some(Node {
            work: Work::ScaledSum(1.0),
            inputs: vec![so_far, alone],
            outputs: vec![sum],
            block: node.block,
            origin: number + 1,
        })
    }
}
