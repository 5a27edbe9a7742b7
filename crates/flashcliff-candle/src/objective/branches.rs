//! Branches of a captured step: what may run beside the line of a plan, and what the line must wait for.
//!
//! ```text
//! forward    parameters in another order, before all other nodes
//!            a linear map, if the next node does not read its output: the map of the other factor of a product
//! backward   the gradients of the weight and of the bias of a linear map, and those of parameters in another order; nothing
//!            reads them before they are added up
//! ```
//! Steps of small batches are chains of kernels that fill a small part of a GPU, so a branch costs next to nothing. It has the kernels and the
//! numbers of the line, so the results have the same bits.
//!
//! A branch begins behind all that was launched on the line before, and branches follow each other. The line waits for a branch before it writes
//! memory that the branch uses, or reads memory that the branch writes.

use std::collections::HashMap;

use super::plan::{Holder, Node, Operand, Plan, ValueId, Wanted, Work};

/// Memory of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Memory {
    /// The memory of a value, by its place.
    Value(usize),
    /// A buffer of gradients.
    Gradient(usize),
}

/// A use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Written,
}

impl Use {
    /// Whether two uses of the same memory must keep their order.
    fn conflicts(self, other: Self) -> bool {
        [self, other].contains(&Self::Written)
    }
}

/// The memory that branches use, each with the end of its last use there.
#[derive(Debug)]
pub(super) struct Uses<E>(HashMap<Memory, (Use, E)>);

impl<E> Default for Uses<E> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<E: Clone> Uses<E> {
    /// Notes a branch with these uses and its end.
    pub(super) fn note(&mut self, uses: &[(Memory, Use)], end: &E) {
        for &(memory, own) in uses {
            let entry = self.0.entry(memory).or_insert((own, end.clone()));
            let both = match entry.0.conflicts(own) {
                true => Use::Written,
                false => Use::Read,
            };
            *entry = (both, end.clone());
        }
    }

    /// The ends that work of the line with these uses waits for. They need no second wait.
    pub(super) fn ends(&mut self, uses: &[(Memory, Use)]) -> Vec<E> {
        let mut ends = Vec::new();
        for (memory, own) in uses {
            let known = self.0.get(memory);
            if known.is_some_and(|(other, _)| own.conflicts(*other)) {
                ends.extend(self.0.remove(memory).map(|(_, end)| end));
            }
        }
        ends
    }
}

impl Plan {
    /// The nodes that may run before all others: they read parameters alone, and no other value lies in their memory.
    pub(super) fn ahead(&self) -> Vec<usize> {
        let nodes = 0..self.nodes.len();
        nodes.filter(|&at| self.is_ahead(at)).collect()
    }

    fn is_ahead(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let memory = self.blocks.memory(node.output.value);
        let lies_there = |&value: &usize| self.blocks.memory(ValueId(value)) == memory;
        is_reversal(node) && (0..self.values.len()).filter(lies_there).count() == 1
    }

    /// Whether the forward pass of a node may run beside the line.
    pub(super) fn forks_forward(&self, at: usize) -> bool {
        if self.is_ahead(at) {
            return true;
        }
        let output = self.nodes[at].output.value;
        let next = self.nodes.get(at + 1);
        let reads = |next: &Node| next.inputs.iter().any(|input| input.value == output);
        is_linear(&self.nodes[at]) && next.is_some_and(|next| !reads(next))
    }

    /// Whether the gradients of the parameters of a node may be computed beside those of its values.
    pub(super) fn forks_backward(&self, at: usize) -> bool {
        let wanted = &self.wanted[at];
        let [mut values, mut parameters] = [false; 2];
        for wanted in wanted {
            values |= matches!(wanted, Wanted::Written | Wanted::Added);
            parameters |= matches!(wanted, Wanted::Parameter(_));
        }
        parameters && (is_reversal(&self.nodes[at]) || is_linear(&self.nodes[at]) && values)
    }

    /// The gradients of a node that are computed on the line, and those beside it.
    pub(super) fn shares(&self, at: usize) -> [Vec<Wanted>; 2] {
        [false, true].map(|of_parameters| {
            let keep =
                |wanted: &Wanted| match matches!(wanted, Wanted::Parameter(_)) == of_parameters {
                    true => *wanted,
                    false => Wanted::No,
                };
            self.wanted[at].iter().map(keep).collect()
        })
    }

    /// The memory that the forward pass of a node uses.
    pub(super) fn forward_uses(&self, node: &Node) -> Vec<(Memory, Use)> {
        let output = self.blocks.memory(node.output.value);
        let mut uses = self.reads(&node.inputs);
        uses.push((Memory::Value(output), Use::Written));
        uses
    }

    /// The memory that the backward pass of a node uses for some gradients.
    pub(super) fn backward_uses(&self, node: &Node, wanted: &[Wanted]) -> Vec<(Memory, Use)> {
        let mut uses = self.reads(&node.inputs);
        uses.extend(self.reads(std::slice::from_ref(&node.output)));
        let gradient = |operand: &Operand| self.gradient_of[operand.value.0].map(Memory::Gradient);
        uses.extend(gradient(&node.output).map(|own| (own, Use::Read)));
        for (wanted, input) in wanted.iter().zip(&node.inputs) {
            if let Wanted::Written | Wanted::Added = wanted {
                uses.extend(gradient(input).map(|own| (own, Use::Written)));
            }
        }
        uses
    }

    /// The memory that the error uses.
    pub(super) fn error_uses(&self) -> Vec<(Memory, Use)> {
        let value = Memory::Value(self.blocks.memory(self.prediction));
        let gradient = self.gradient_of[self.prediction.0].map(Memory::Gradient);
        let read = [(value, Use::Read)];
        let written = gradient.map(|own| (own, Use::Written));
        read.into_iter().chain(written).collect()
    }

    fn reads(&self, operands: &[Operand]) -> Vec<(Memory, Use)> {
        let in_buffers = operands
            .iter()
            .filter(|operand| matches!(self.values[operand.value.0].holder, Holder::Buffer));
        let read = |operand: &Operand| {
            let memory = Memory::Value(self.blocks.memory(operand.value));
            (memory, Use::Read)
        };
        in_buffers.map(read).collect()
    }
}

/// Whether a node brings a parameter into another order.
fn is_reversal(node: &Node) -> bool {
    matches!(node.work, Work::ReverseAxes)
}

/// Whether a node is a linear map, whose gradients are matrix products of their own.
fn is_linear(node: &Node) -> bool {
    matches!(&node.work, Work::Operator(operator, _) if operator.adds_to_gradient())
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::models::{Architecture, Model};

    /// Work of a branch that the line may not have waited for.
    type Branch = Vec<(Memory, Use)>;

    /// A run of both passes, as a line and branches in order.
    struct Run<'a> {
        plan: &'a Plan,
        waits: bool,
        uses: Uses<usize>,
        branches: Vec<Branch>,
        /// The number of branches that the line has waited for.
        waited: usize,
        conflicts: usize,
    }

    impl Run<'_> {
        /// The memory that a node uses, from its operands alone.
        fn touched(&self, at: usize, is_backward: bool, wanted: &[Wanted]) -> Branch {
            let node = &self.plan.nodes[at];
            let value = |operand: &Operand| Memory::Value(self.plan.blocks.memory(operand.value));
            let gradient = |operand: &Operand| {
                let buffer = self.plan.gradient_of[operand.value.0];
                Memory::Gradient(buffer.unwrap())
            };
            let mut all = Vec::new();
            for (at, input) in node.inputs.iter().enumerate() {
                if matches!(self.plan.values[input.value.0].holder, Holder::Buffer) {
                    all.push((value(input), Use::Read));
                }
                if is_backward && matches!(wanted[at], Wanted::Written | Wanted::Added) {
                    all.push((gradient(input), Use::Written));
                }
            }
            match is_backward {
                true => all.extend([
                    (value(&node.output), Use::Read),
                    (gradient(&node.output), Use::Read),
                ]),
                false => all.push((value(&node.output), Use::Written)),
            }
            all
        }

        fn line(&mut self, uses: &[(Memory, Use)], touched: &Branch) {
            if self.waits {
                let last = self.uses.ends(uses).into_iter().max();
                self.waited = self.waited.max(last.map_or(0, |end| end + 1));
            }
            for (memory, own) in self.branches[self.waited..].iter().flatten() {
                let meets = |(other, its): &&(Memory, Use)| other == memory && own.conflicts(*its);
                self.conflicts += touched.iter().filter(meets).count();
            }
        }

        fn branch(&mut self, uses: &[(Memory, Use)], touched: Branch) {
            self.uses.note(uses, &self.branches.len());
            self.branches.push(touched);
        }

        fn forward(&mut self, at: usize, may_fork: bool) {
            let uses = self.plan.forward_uses(&self.plan.nodes[at]);
            let touched = self.touched(at, false, &[]);
            match may_fork && self.plan.forks_forward(at) {
                true => self.branch(&uses, touched),
                false => self.line(&uses, &touched),
            }
        }

        fn backward(&mut self, at: usize) {
            let (node, all) = (&self.plan.nodes[at], &self.plan.wanted[at]);
            if all.iter().all(|&wanted| wanted == Wanted::No) {
                return;
            }
            let [of_values, of_parameters] = self.plan.shares(at);
            if self.plan.forks_backward(at) {
                let touched = self.touched(at, true, &of_parameters);
                self.branch(&self.plan.backward_uses(node, &of_parameters), touched);
            }
            let wanted = match self.plan.forks_backward(at) {
                true => &of_values,
                false => all,
            };
            if wanted.iter().all(|&wanted| wanted == Wanted::No) {
                return;
            }
            let touched = self.touched(at, true, wanted);
            self.line(&self.plan.backward_uses(node, wanted), &touched);
        }
    }

    /// The number of branches, and that of pairs of uses whose order nothing keeps.
    fn run(plan: &Plan, waits: bool) -> (usize, usize) {
        let mut run = Run {
            plan,
            waits,
            uses: Uses::default(),
            branches: Vec::new(),
            waited: 0,
            conflicts: 0,
        };
        let ahead = plan.ahead();
        let others = (0..plan.nodes.len()).filter(|at| !ahead.contains(at));
        for at in ahead.iter().copied().chain(others) {
            run.forward(at, true);
        }
        let uses = plan.error_uses();
        run.line(&uses, &uses);
        for at in (0..plan.nodes.len()).rev() {
            for &again in plan.blocks.again(at) {
                run.forward(again, false);
            }
            run.backward(at);
        }
        (run.branches.len(), run.conflicts)
    }

    #[test]
    fn the_line_waits_for_what_branches_use() {
        for (architecture, least) in [
            (Architecture::Hulls, 14),
            (Architecture::Regression { width: 20 }, 2),
            (Architecture::Volumes, 6),
        ] {
            let model = Model::new(architecture, 3, DType::F32).unwrap();
            for checkpointed in [false, true] {
                let mut plan = model.plan(4).unwrap().unwrap();
                if checkpointed {
                    plan = plan.checkpointed();
                }
                let (branches, conflicts) = run(&plan, true);
                assert!(branches >= least, "{architecture:?}: {branches} branches");
                assert_eq!(conflicts, 0, "{architecture:?}, {checkpointed}");
                // Without waits there are conflicts, so the check can fail.
                assert!(run(&plan, false).1 > 0, "{architecture:?}, {checkpointed}");
            }
        }
    }
}
