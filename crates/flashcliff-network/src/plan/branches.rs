//! Branches of a captured step: what may run beside the line of a plan, and what the line must wait for.
//!
//! ```text
//! what is made of parameters alone, before all other calls
//! a linear map that is not joined to others, if the next call does not read its result: the map of the other factor of a product
//! the gradients of parameters of such a linear map, and of parameters in another order or one after another;
//!   nothing reads them before they are added up
//! ```
//! Steps of small batches are chains of kernels that fill a small part of a GPU, so a branch costs next to nothing.
//! It has the kernels and the numbers of the line, so the results have the same bits.
//!
//! A branch begins after all that was launched on the line before it, and branches follow each other. The line waits
//! for a branch before it writes memory that the branch uses, or reads memory that the branch writes.

#[cfg(any(feature = "cuda", test))]
use super::Memory;
use super::Plan;
use crate::network::{Network, Value};
use crate::work::Work;

/// A use of memory.
#[cfg(any(feature = "cuda", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Written,
}

#[cfg(any(feature = "cuda", test))]
impl Memory {
    /// Whether the two have bytes in common.
    pub(super) fn meets(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Arena { from, to },
                Self::Arena {
                    from: other,
                    to: end,
                },
            )
            | (
                Self::Kept { from, to },
                Self::Kept {
                    from: other,
                    to: end,
                },
            ) => from < end && other < to,
            _ => self == other,
        }
    }
}

/// The memory that branches use, each with the end of its use.
#[cfg(any(feature = "cuda", test))]
#[derive(Debug)]
pub(crate) struct Uses<E>(Vec<(Memory, Use, E)>);

#[cfg(any(feature = "cuda", test))]
impl<E> Default for Uses<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(any(feature = "cuda", test))]
impl<E: Clone> Uses<E> {
    /// Notes a branch with these uses and its end.
    pub(crate) fn note(&mut self, uses: &[(Memory, Use)], end: &E) {
        let own = uses.iter().map(|&(memory, own)| (memory, own, end.clone()));
        self.0.extend(own);
    }

    /// The ends that work of the line with these uses waits for. They need no second wait.
    pub(crate) fn ends(&mut self, uses: &[(Memory, Use)]) -> Vec<E> {
        let conflicts = |memory: Memory, own: Use| {
            uses.iter()
                .any(|&(other, its)| [own, its].contains(&Use::Written) && memory.meets(other))
        };
        let mut ends = Vec::new();
        self.0.retain(|(memory, own, end)| {
            let waits = conflicts(*memory, *own);
            if waits {
                ends.push(end.clone());
            }
            !waits
        });
        ends
    }
}

impl Network {
    /// Whether a node of the forward pass is made of parameters alone.
    pub(crate) fn is_ahead(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.work.moves()
            && node
                .inputs
                .iter()
                .all(|&input| self.is_of_parameters(input))
    }
}

impl Plan {
    /// Whether a call may run beside the line: nothing waits for it at once.
    pub(crate) fn forks(&self, call: usize) -> bool {
        let node = self.node(call);
        match &node.work {
            // All gradients of such maps are one launch.
            _ if self.joined.of(call).is_some() => false,
            work if work.moves() => self.network.is_ahead(self.calls[call].node),
            Work::Gradient(gradient) => {
                let of = &*gradient.of;
                let is_parameter = |value: &Value| {
                    let of = self.network.values[value.0].gradient_of;
                    of.is_some_and(|of| self.network.is_of_parameters(of))
                };
                (of.is_linear() || of.moves()) && node.outputs.iter().all(is_parameter)
            }
            // The matrix of a step is a result too.
            Work::Operator(_) => node.work.is_linear() && !self.next_reads(call, node.outputs[0]),
            _ => false,
        }
    }

    /// Whether the next call reads a value, or there is none.
    fn next_reads(&self, call: usize, value: Value) -> bool {
        let next = self.calls.get(call + 1);
        next.is_none_or(|next| self.network.nodes[next.node].inputs.contains(&value))
    }

    /// The memory that a call uses, and those that run with it.
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn uses(&self, call: usize) -> Vec<(Memory, Use)> {
        if let Some(chain) = self.chains.led_by(call) {
            return chain.iter().flat_map(|&call| self.own_uses(call)).collect();
        }
        let calls = self.joined.led_by(call).unwrap_or(call..call + 1);
        calls.flat_map(|call| self.own_uses(call)).collect()
    }

    #[cfg(any(feature = "cuda", test))]
    fn own_uses(&self, call: usize) -> Vec<(Memory, Use)> {
        let node = self.node(call);
        let of = |values: &[Value], own: Use| -> Vec<(Memory, Use)> {
            let spots = values
                .iter()
                .filter_map(|value| self.spots[value.0].as_ref());
            spots.map(|spot| (spot.memory, own)).collect()
        };
        let mut uses = of(&node.inputs, Use::Read);
        uses.extend(
            self.sum_before(call).into_iter().flat_map(|sum| {
                [of(&sum.inputs, Use::Read), of(&sum.outputs, Use::Written)].concat()
            }),
        );
        uses.extend(of(&node.outputs, Use::Written));
        uses.retain(|(memory, _)| !matches!(memory, Memory::Input(_) | Memory::Parameter(_)));
        uses
    }
}

#[cfg(test)]
mod tests {
    use flashcliff::ops::{self, LinearOptions, ProductOptions};
    use flashcliff::{Algebra, Bias, Dtype, Gate, Norm, Signature};

    use super::*;
    use crate::{Axis, Keep};

    /// A network of three layers that have two maps of one value and their product, the last one fully connected.
    fn plan(keep: Keep) -> Plan {
        let algebra = Algebra::new(Signature::of(3, 0, 0)).unwrap();
        let options = LinearOptions::default()
            .with_per_grade(false)
            .with_bias(Bias::None);
        let linear = ops::mv_linear(algebra, &options).unwrap();
        let options = ProductOptions::default()
            .with_gate(Gate::None)
            .with_norm(Norm::None);
        let product = ops::fcgp_norm(algebra, &options).unwrap();
        let flashcliff::Dim::Fixed(paths) = product.inputs()[2].dims[0] else {
            panic!("another layout");
        };
        let mut network = Network::new();
        let shape = [Axis::Fixed(8), Axis::Rows, Axis::Fixed(2)];
        let (mut x, target) = (network.input("x", &shape), network.input("target", &shape));
        for layer in 0..3 {
            network.block();
            let weight =
                |own: &mut Network, name| own.parameter(&format!("{name} {layer}"), &[2, 2]);
            let (left, right) = (weight(&mut network, "left"), weight(&mut network, "right"));
            let left = network.operator(&linear, &[x, left]).unwrap();
            let right = network.operator(&linear, &[x, right]).unwrap();
            let stored = network.parameter(&format!("stored {layer}"), &[2, 2, paths]);
            let stored = network.reverse_axes(stored).unwrap();
            x = network.operator(&product, &[left, right, stored]).unwrap();
        }
        let [loss, seed] = network.squared_error(x, target).unwrap();
        let pairs = network.gradients(x, seed, keep).unwrap();
        let mut outputs = vec![loss];
        outputs.extend(pairs.iter().map(|&(_, gradient)| gradient));
        network.plan(&outputs, 5, [Dtype::F32; 2]).unwrap()
    }

    /// The number of branches, and the number of pairs of uses whose order nothing keeps. Uses come from the
    /// network alone: from the values that a call names.
    fn run(plan: &Plan, waits: bool) -> (usize, usize) {
        let touched = |call: usize| {
            let node = plan.node(call);
            let own = |values: &[Value], own: Use| -> Vec<(Memory, Use)> {
                let spots = values.iter().map(|&value| plan.spot(value).unwrap().memory);
                spots.map(|memory| (memory, own)).collect()
            };
            [
                own(&node.inputs, Use::Read),
                own(&node.outputs, Use::Written),
            ]
            .concat()
        };
        let (mut uses, mut waited, mut conflicts) = (Uses::<usize>::default(), 0, 0);
        let mut branches: Vec<Vec<(Memory, Use)>> = Vec::new();
        for call in 0..plan.call_count() {
            if plan.forks(call) {
                uses.note(&plan.uses(call), &branches.len());
                branches.push(touched(call));
                continue;
            }
            if waits {
                let last = uses.ends(&plan.uses(call)).into_iter().max();
                waited = waited.max(last.map_or(0, |end| end + 1));
            }
            for (memory, own) in branches[waited..].iter().flatten() {
                let meets = |(other, its): &&(Memory, Use)| {
                    memory.meets(*other) && [*own, *its].contains(&Use::Written)
                };
                conflicts += touched(call).iter().filter(meets).count();
            }
        }
        (branches.len(), conflicts)
    }

    #[test]
    fn the_line_waits_for_what_branches_use() {
        for keep in [Keep::All, Keep::BetweenBlocks] {
            let plan = plan(keep);
            let (branches, conflicts) = run(&plan, true);
            // In each layer a map, the reversal of a weight, and the gradients of three weights.
            assert!(branches >= 3 * 5, "{branches} branches");
            assert_eq!(conflicts, 0, "{keep:?}");
            // Without waits there are conflicts, so the check can fail.
            assert!(run(&plan, false).1 > 0, "{keep:?}");
        }
    }
}
