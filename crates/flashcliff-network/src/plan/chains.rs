//! Calls of a plan for a GPU that one launch does: steps on the same rows, each on the tokens that the one before made.
//!
//! ```text
//! each by itself:  x -> norm -> linear map -> products -> linear map -> gate -> linear map -> sum -> norm -> linear map
//! as a chain:      x -> all of these
//! ```
//! The launch is that of the first one, and the others have nothing to do. Tokens that nobody else reads have no memory.
//!
//! Plans with gradients have none: gradients read most of what the steps make, and writing it takes as long as the kernels of single
//! steps.

use super::Plan;
use crate::network::{Node, Value};
#[cfg(any(feature = "cuda", test))]
use crate::tokens::Step;
use crate::work::Work;

/// Whether one launch takes the steps of some calls, each of which reads what the one before makes.
pub(crate) type Fuses<'a> = dyn Fn(&Plan, &[usize]) -> bool + 'a;

/// The calls of a chain, in order.
pub(crate) type Chain = Vec<usize>;

/// The chains of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    chains: Vec<Chain>,
    /// For each value whether it has no memory.
    absent: Vec<bool>,
    /// Calls that no launch takes together, where chains end or do not begin: the calls of a chain, and the next one.
    #[cfg_attr(
        not(any(feature = "cuda", test)),
        expect(dead_code, reason = "read on GPUs only")
    )]
    pub(crate) ends: Vec<Chain>,
}

impl Chains {
    /// Finds the chains of a plan, whose calls and sums are there.
    pub(super) fn new(plan: &Plan, fuses: &Fuses<'_>) -> Self {
        let is_gradient = |call: usize| matches!(plan.work(call), Work::Gradient(_));
        if (0..plan.call_count()).any(is_gradient) {
            return Self::default();
        }
        let (mut chains, mut chain, mut ends) = (Vec::new(), Chain::new(), Vec::new());
        for call in 0..plan.call_count() {
            let is_aside = plan.gathered.is_idle(call)
                || plan.residuals.is_idle(call)
                || plan.network.is_ahead(plan.calls[call].node);
            if is_aside {
                continue;
            }
            if chain.last().is_some_and(|&last| plan.follows(call, last)) {
                chain.push(call);
                if fuses(plan, &chain) {
                    continue;
                }
                ends.push(chain.clone());
                chain.pop();
            }
            chains.push(std::mem::take(&mut chain));
            if matches!(plan.work(call), Work::Step(_)) {
                chain.push(call);
                if !fuses(plan, &chain) {
                    ends.push(std::mem::take(&mut chain));
                }
            }
        }
        chains.push(chain);
        chains.retain(|chain| chain.len() > 1);
        let mut absent = vec![false; plan.spots.len()];
        for chain in &chains {
            for value in plan.made_in(chain) {
                absent[value.0] = !plan.is_read_outside(chain, value);
            }
        }
        Self {
            chains,
            absent,
            ends,
        }
    }

    /// The chain of which a call is one.
    pub(crate) fn of(&self, call: usize) -> Option<&Chain> {
        let at = self
            .chains
            .partition_point(|chain| chain.last() < Some(&call));
        self.chains.get(at).filter(|chain| chain.contains(&call))
    }

    /// The chain of which a call is the first.
    pub(crate) fn led_by(&self, call: usize) -> Option<&Chain> {
        self.of(call).filter(|chain| chain[0] == call)
    }

    /// Whether a call in front of a call does its work.
    pub(super) fn is_idle(&self, call: usize) -> bool {
        self.of(call).is_some_and(|chain| chain[0] < call)
    }

    /// Whether a value is not there, because the chain that makes it is all that reads it.
    pub(super) fn is_absent(&self, value: Value) -> bool {
        self.absent.get(value.0).copied().unwrap_or(false)
    }

    /// What chains write, and the matrices that are made in front of their calls, each with the first call.
    pub(super) fn lives(&self, plan: &Plan) -> Vec<(Value, usize)> {
        let mut lives = Vec::new();
        for chain in &self.chains {
            let matrices = chain
                .iter()
                .flat_map(|&call| plan.gathered.matrices_before(call));
            let values = plan.made_in(chain).into_iter().chain(matrices);
            lives.extend(values.map(|value| (value, chain[0])));
        }
        lives
    }
}

impl Plan {
    /// Whether a call works on what another one makes, or on a sum with it, and on the same rows.
    fn follows(&self, call: usize, last: usize) -> bool {
        let (Work::Step(_), Work::Step(_)) = (self.work(call), self.work(last)) else {
            return false;
        };
        let made = self.writes(last)[0];
        let set = |call: usize| self.network.set_of(self.writes(call)[0]);
        self.stage_of(call) == self.stage_of(last)
            && set(call) == set(last)
            && self.tokens_of(call).contains(&made)
    }

    /// The tokens that a step works on: its own, or the summands of the sum that it computes before.
    fn tokens_of(&self, call: usize) -> &[Value] {
        match self.sum_before(call) {
            Some(sum) => &sum.inputs,
            None => &self.reads(call)[..1],
        }
    }

    /// The values that a chain makes: tokens, and sums in front of steps.
    fn made_in(&self, chain: &[usize]) -> Vec<Value> {
        let sums = chain.iter().filter_map(|&call| self.sum_before(call));
        let sums = sums.map(|sum| sum.outputs[0]);
        chain
            .iter()
            .map(|&call| self.writes(call)[0])
            .chain(sums)
            .collect()
    }

    /// Whether something reads a value that a chain makes, besides the next step of the chain.
    pub(crate) fn is_read_outside(&self, chain: &[usize], value: Value) -> bool {
        let is_sum = |node: &Node| node.outputs[0] == value;
        let maker = chain.iter().position(|&call| {
            self.writes(call)[0] == value || self.sum_before(call).is_some_and(is_sum)
        });
        let made_by_step = maker.filter(|&at| self.writes(chain[at])[0] == value);
        // A sum is read by the step that computes it, tokens by the next one.
        let reader = match made_by_step {
            Some(at) => chain.get(at + 1),
            None => maker.map(|at| &chain[at]),
        };
        let is_reader = |call: usize| match (reader, made_by_step) {
            (Some(&reader), Some(_)) if self.sum_before(reader).is_some() => call + 1 == reader,
            (Some(&reader), _) => call == reader,
            (None, _) => false,
        };
        let is_once = |call: usize| {
            let own = self.reads(call).iter().filter(|own| **own == value);
            own.count() == 1
        };
        self.outputs.contains(&value)
            || (0..self.call_count()).any(|call| {
                self.reads(call).contains(&value) && !(is_reader(call) && is_once(call))
            })
    }

    /// Whether a value has no memory, because nothing reads it there.
    pub(crate) fn is_absent(&self, value: Value) -> bool {
        self.gathered.is_absent(value) || self.chains.is_absent(value)
    }

    /// The step of a call of the forward pass.
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn step(&self, call: usize) -> Option<&Step> {
        match self.work(call) {
            Work::Step(step) => Some(step),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::gathered::tests::{check_memory, plan_fusing, transformer};
    use crate::{Keep, Network};

    /// Linear maps and programs run together, at most so many.
    fn chains(network: &Network, stages: &[&[Value]], most: usize) -> (Plan, Vec<usize>) {
        let fuses = |plan: &Plan, calls: &[usize]| {
            let is_fit =
                |&call: &usize| matches!(plan.step(call), Some(Step::Linear(_) | Step::Lanes(_)));
            calls.len() <= most && calls.iter().all(is_fit)
        };
        let plan = plan_fusing(network, stages, &fuses);
        check_memory(&plan);
        let lens = leaders(&plan).into_iter();
        let lens = lens
            .filter_map(|call| plan.chains.led_by(call))
            .map(Vec::len);
        let lens = lens.collect();
        (plan, lens)
    }

    fn leaders(plan: &Plan) -> Vec<usize> {
        let calls = 0..plan.call_count();
        calls
            .filter(|&call| plan.chains.led_by(call).is_some())
            .collect()
    }

    /// The values without memory.
    fn absent(plan: &Plan) -> usize {
        plan.chains.absent.iter().filter(|own| **own).count()
    }

    #[test]
    fn chains_of_a_transformer_reach_from_attention_to_attention() {
        let (network, output, _) = transformer(Keep::All);
        // In front of attention: the first map, the norm, the projections. Between: the map of the output, the norm, the
        // factors, the products, two maps around the gate, and the next norm and projections. The last sum is alone.
        let (plan, lens) = chains(&network, &[&[output]], usize::MAX);
        assert_eq!(lens, [3, 9, 9, 7]);
        // All but the last of a chain, and the first tokens, which the first sum reads. Later sums read those in front of norms.
        let inside: usize = lens.iter().map(|len| len - 1).sum();
        assert_eq!(absent(&plan), inside - 1);
        let (plan, lens) = chains(&network, &[&[output]], 4);
        assert_eq!(lens, [3, 4, 4, 4, 4, 4, 3]);
        // Two chains of nine steps end twice, one of seven once, each because a fifth step is too many.
        let long = plan.chains.ends.iter().filter(|own| own.len() == 5);
        assert_eq!(long.count(), 5);
        let one = |own: &&Chain| own.len() == 1;
        let alone = plan.chains.ends.iter().filter(one);
        let names: Vec<String> = alone
            .map(|own| plan.work(own[0]).name().to_string())
            .collect();
        // Two steps that are no part of any chain here, in front of each of two blocks and of the end.
        assert_eq!(names, ["attention", "gains"].repeat(3));
        assert!(chains(&network, &[&[output]], 1).1.is_empty());
    }

    #[test]
    fn what_others_read_has_memory() {
        let (network, output, _) = transformer(Keep::All);
        let plan = chains(&network, &[&[output]], usize::MAX).0;
        let chain = plan.chains.led_by(leaders(&plan)[1]).unwrap();
        let inside = plan.writes(chain[3])[0];
        let (plan, lens) = chains(&network, &[&[output, inside]], usize::MAX);
        assert_eq!(lens, [3, 9, 9, 7]);
        assert!(plan.spot(inside).is_ok());
        // In stages it is an output of the first one, so the chain of the other one begins after it.
        let lens = chains(&network, &[&[inside], &[output]], usize::MAX).1;
        assert_eq!(lens, [3, 4, 5, 9, 7]);
    }

    #[test]
    fn plans_with_gradients_have_no_chains() {
        for keep in [Keep::All, Keep::BetweenBlocks] {
            let (network, output, gradients) = transformer(keep);
            assert!(
                chains(&network, &[&[output], &gradients], usize::MAX)
                    .1
                    .is_empty()
            );
            let all = [&[output], &gradients[..]].concat();
            assert!(chains(&network, &[&all], usize::MAX).1.is_empty());
        }
    }
}
