//! Sums in front of norms and operators. Their kernels on a GPU add two values, write the sum and work on it, so the
//! call of a sum has nothing to do if that of such a step is the next one.

use super::Plan;
use crate::network::{Node, Value};
use crate::work::Work;

/// For each call, whether it is a sum whose work the step after it does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residuals(Vec<bool>);

impl Residuals {
    /// Finds the sums of a plan, whose calls are there.
    pub(super) fn new(plan: &Plan) -> Self {
        let takes_sums = |call: usize| match plan.work(call) {
            Work::Step(step) => step.takes_sums(),
            _ => false,
        };
        let is_added = |call: usize| {
            let (node, next) = (plan.node(call), call + 1);
            matches!(node.work, Work::ScaledSum(1.0))
                && node.inputs.len() == 2
                && plan.calls(plan.stage_of(call)).contains(&next)
                && takes_sums(next)
                && plan.reads(next)[0] == node.outputs[0]
        };
        Self((0..plan.call_count()).map(is_added).collect())
    }

    /// Whether the step behind a call does its work.
    pub(super) fn is_idle(&self, call: usize) -> bool {
        self.0.get(call).copied().unwrap_or(false)
    }

    /// The values that are added, each with the call that adds them.
    pub(super) fn lives(&self, plan: &Plan) -> Vec<(Value, usize)> {
        let sums = (0..self.0.len()).filter(|&call| self.0[call]);
        let added = |call: usize| plan.reads(call).iter().map(move |&own| (own, call + 1));
        sums.flat_map(added).collect()
    }
}

impl Plan {
    /// The sum that a call computes before its own work.
    pub(crate) fn sum_before(&self, call: usize) -> Option<&Node> {
        let sum = call.checked_sub(1)?;
        self.residuals.is_idle(sum).then(|| self.node(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::gathered::tests::{check_memory, plan, transformer};
    use crate::tokens::{Lanes, NormOptions, Step};
    use crate::{Axis, Keep, Network};

    fn sums(plan: &Plan) -> usize {
        check_memory(plan);
        let sums = (0..plan.call_count()).filter(|&call| plan.sum_before(call).is_some());
        sums.count()
    }

    #[test]
    fn norms_of_a_transformer_compute_the_sums_in_front_of_them() {
        let (network, output, gradients) = transformer(Keep::All);
        let all = [&[output], &gradients[..]].concat();
        // Two sums for each of three blocks. A linear layer reads the last one.
        assert_eq!(sums(&plan(&network, &[&all], true)), 5);
        assert_eq!(sums(&plan(&network, &[&[output], &gradients], true)), 5);
        assert_eq!(sums(&plan(&network, &[&all], false)), 0);
        let (network, output, gradients) = transformer(Keep::BetweenBlocks);
        let all = [&[output], &gradients[..]].concat();
        // The sum within a block is computed again, by the norm after it.
        assert_eq!(sums(&plan(&network, &[&all], true)), 5 + 3);
    }

    #[test]
    fn norms_that_are_programs_compute_sums_and_add_gradients() {
        use crate::tokens::{Channels, Slim};

        let algebra = "cl130".parse().unwrap();
        let channels = Channels::new(2, 3);
        let options = Slim {
            blocks: 3,
            heads: 2,
            ..Slim::new(algebra, channels, channels, Channels::new(4, 8))
        };
        let (mut network, ends) = options.network().unwrap();
        let axes = network.shape(ends.output).unwrap().to_vec();
        let seed = network.features("seed", &axes);
        let pairs = network.gradients(ends.output, seed, Keep::All).unwrap();
        let gradients: Vec<Value> = pairs.into_iter().map(|(_, gradient)| gradient).collect();
        let all = [&[ends.output], &gradients[..]].concat();
        let plan = plan(&network, &[&all], true);
        assert_eq!(sums(&plan), 5);
        let adds =
            |call: &usize| matches!(plan.work(*call), Work::Gradient(gradient) if gradient.adds);
        // Two for each block: what passes a norm by is added to its gradient.
        assert_eq!((0..plan.call_count()).filter(adds).count(), 6);
    }

    #[test]
    fn sums_that_are_no_part_of_a_norm_stay() {
        let geometry = crate::tokens::Geometry::gatr().unwrap();
        let channels = crate::tokens::Channels::new(2, 3);
        let blades = geometry.blades();
        let axes = [Axis::Rows, Axis::Token { blades, channels }];
        let of = |scale: f64, between: bool| {
            let mut network = Network::new();
            let [a, b] = ["a", "b"].map(|name| network.input(name, &axes));
            let sum = network.scaled_sum([a, b], scale).unwrap();
            let other = between.then(|| network.scaled_sum([a, a], 1.0).unwrap());
            let step = Lanes::norm(geometry, channels, NormOptions::default()).unwrap();
            let normed = network.step(Step::Lanes(step), &[sum]).unwrap();
            let outputs: Vec<Value> = [Some(sum), Some(normed), other]
                .into_iter()
                .flatten()
                .collect();
            sums(&plan(&network, &[&outputs], true))
        };
        assert_eq!(of(1.0, false), 1);
        assert_eq!(of(0.5, false), 0);
        assert_eq!(of(1.0, true), 0);
    }
}
