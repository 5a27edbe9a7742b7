//! Calls of a plan for a GPU that one launch does together: linear maps of few channels that read the same rows, such
//! as both maps of a layer of products, and the gradients of such maps, for rows and for parameters.
//!
//! ```text
//! each by itself:  x -> left; x -> right;  left's gradient -> its weight, bias; + x; right's gradient -> its weight; + x
//! together:        x -> left, right;       both gradients -> weights, bias, + x
//! ```
//! They are neighbours. The launch is that of the first one, and the others have nothing to do.

use std::ops::Range;

use flashcliff::{Dims, Dtype, Operator};

use super::Plan;
use crate::network::{Node, Value};
use crate::work::Work;

/// Whether one launch takes linear maps of these operators, with sizes and with types of lanes and of parameters;
/// none is refused for being alone.
pub(crate) type Joins = fn(&[&Operator], &Dims, [Dtype; 2]) -> bool;

/// The calls that run together, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joined(Vec<Range<usize>>);

impl Joined {
    /// Finds the calls of a plan, which are there, as the types of values are.
    pub(super) fn new(plan: &Plan, joins: Joins) -> Self {
        let mut all = Vec::new();
        let mut call = 0;
        while call < plan.call_count() {
            let mut group = Group::default();
            let stage = plan.calls(plan.stage_of(call)).end;
            let taken = (call..stage).take_while(|&next| group.takes(plan, next, joins));
            let end = call + taken.count().max(1);
            if end - call > 1 {
                all.push(call..end);
            }
            call = end;
        }
        Self(all)
    }

    /// The calls that run together, of which a call is the first.
    #[cfg(any(feature = "cuda", test))]
    pub(crate) fn led_by(&self, call: usize) -> Option<Range<usize>> {
        self.of(call).filter(|group| group.start == call)
    }

    /// The calls that run together, of which a call is one.
    pub(crate) fn of(&self, call: usize) -> Option<Range<usize>> {
        let at = self.0.partition_point(|group| group.end <= call);
        self.0
            .get(at)
            .filter(|group| group.contains(&call))
            .cloned()
    }

    /// Whether a call in front of a call does its work.
    pub(super) fn is_idle(&self, call: usize) -> bool {
        self.of(call).is_some_and(|group| group.start < call)
    }

    /// The results of calls that run together, with the call that writes them.
    pub(super) fn lives(&self, plan: &Plan) -> Vec<(Value, usize)> {
        let groups = self.0.iter().cloned();
        let results = |group: Range<usize>| {
            let first = group.start;
            group.flat_map(move |call| plan.writes(call).iter().map(move |&own| (own, first)))
        };
        groups.flat_map(results).collect()
    }
}

/// Calls that run together so far.
#[derive(Default)]
struct Group<'a> {
    /// The maps, by the nodes that stand for them.
    maps: Vec<(usize, &'a Operator)>,
    /// The rows, whether the calls compute gradients, and their sizes.
    of: Option<(Value, bool, Dims)>,
    /// The gradient of the rows so far.
    rows: Option<Value>,
    results: Vec<Value>,
}

impl<'a> Group<'a> {
    /// Takes a call, if it can run with those so far.
    fn takes(&mut self, plan: &'a Plan, call: usize, joins: Joins) -> bool {
        let node = plan.node(call);
        let (Work::Operator(operator), Some(dims)) = (node.work.own(), plan.dims(call)) else {
            return false;
        };
        let back = matches!(node.work, Work::Gradient(_));
        let of = (node.inputs[0], back, *dims);
        let fits = operator.outputs().len() == 1
            && plan
                .network
                .has_own_weights(&plan.network.nodes[node.origin], operator)
            && self.of.is_none_or(|own| own == of)
            && self.chain(node);
        if !fits {
            return false;
        }
        let is_new = !self.maps.iter().any(|(origin, _)| *origin == node.origin);
        let known = self.maps.iter().map(|(_, operator)| *operator);
        let operators: Vec<&Operator> = known.chain(is_new.then_some(&**operator)).collect();
        let types = [plan.types[usize::from(plan.wide[of.0.0])], plan.types[1]];
        if !joins(&operators, dims, types) {
            return false;
        }
        if is_new {
            self.maps.push((node.origin, operator));
        }
        self.of = Some(of);
        self.results.extend(&node.outputs);
        true
    }

    /// Whether what a node reads is there before the group, but for the gradient of the rows, to which each adds its own.
    fn chain(&mut self, node: &Node) -> bool {
        let Work::Gradient(gradient) = &node.work else {
            return true;
        };
        let (adds, of_rows) = (gradient.adds, gradient.wanted[0]);
        let read = &node.inputs[..node.inputs.len() - usize::from(adds)];
        if read.iter().any(|input| self.results.contains(input)) {
            return false;
        }
        if of_rows {
            let so_far = node.inputs.last().filter(|_| adds).copied();
            if self.rows.is_some() && self.rows != so_far {
                return false;
            }
            self.rows = node.outputs.first().copied();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use flashcliff::ops::{self, LinearOptions};
    use flashcliff::{Algebra, Signature};

    use super::*;
    use crate::messages::Bodies;
    use crate::plan::gathered::tests::{check_memory, plan_joining};
    use crate::{Axis, Keep, Network};

    /// Maps of up to so many channels.
    fn of_few(operators: &[&Operator], dims: &Dims, _: [Dtype; 2]) -> bool {
        let channels = dims.in_channels.max(dims.out_channels);
        operators.iter().all(|own| own.name() == "mv_linear")
            && operators.len() <= 4
            && channels <= 4
    }

    /// The sizes of groups of forward passes, and of gradients.
    fn groups(plan: &Plan) -> [Vec<usize>; 2] {
        check_memory(plan);
        let mut sizes = [Vec::new(), Vec::new()];
        for call in 0..plan.call_count() {
            if let Some(group) = plan.joined.led_by(call) {
                let back = matches!(plan.work(call), Work::Gradient(_));
                sizes[usize::from(back)].push(group.len());
                assert!(!plan.is_idle(call) && !plan.forks(call));
                assert!(
                    group
                        .skip(1)
                        .all(|call| plan.is_idle(call) && !plan.forks(call))
                );
            }
        }
        sizes
    }

    #[test]
    fn both_maps_of_a_product_run_together_and_all_their_gradients() {
        for keep in [Keep::All, Keep::BetweenBlocks] {
            let options = Bodies {
                channels: 3,
                layers: 2,
                ..Bodies::default()
            };
            let (layers, ends) = options.layers().unwrap();
            let mut network = layers.network;
            let axes = network.shape(ends.positions).unwrap().to_vec();
            let seed = network.features("seed", &axes);
            let pairs = network.gradients(ends.positions, seed, keep).unwrap();
            let gradients = pairs.into_iter().map(|(_, gradient)| gradient);
            let outputs: Vec<Value> = [ends.positions].into_iter().chain(gradients).collect();
            let plan = plan_joining(&network, &[&outputs], of_few);
            let [forward, back] = groups(&plan);
            // Two perceptrons of two layers in each of two layers of messages, each with a product. Those that are computed again join too.
            let products = 2 * 2 * 2;
            let again = if keep == Keep::All { 0 } else { products };
            assert_eq!(forward, vec![2; products + again]);
            // Weights and rows of both maps are four calls, weights and rows of other maps two: of the second linear
            // maps of perceptrons, of the first ones on edges, and of the projection. The first ones on nodes have more
            // channels, and other maps have the gradient of parameters alone.
            let sizes = |count: usize| back.iter().filter(|own| **own == count).count();
            assert_eq!([sizes(4), sizes(2)], [products, 2 * 2 + 2 + 1]);
            assert_eq!(back.len(), sizes(4) + sizes(2));
            let in_stages = plan_joining(&network, &[&outputs[..1], &outputs[1..]], of_few);
            assert_eq!(groups(&in_stages)[1].len(), back.len());
            let alone = plan_joining(&network, &[&outputs], |_, _, _| false);
            assert!(groups(&alone).concat().is_empty());
        }
    }

    /// Maps of values, by the numbers of the values that they read: the input is 0, the first result 1.
    fn maps(read: &[usize], channels: usize) -> [Vec<usize>; 2] {
        let algebra = Algebra::new(Signature::of(2, 0, 0)).unwrap();
        let map = ops::mv_linear(algebra, &LinearOptions::default()).unwrap();
        let mut network = Network::new();
        let axes = [Axis::Fixed(4), Axis::Rows, Axis::Fixed(channels)];
        let mut values = vec![network.input("x", &axes)];
        for (at, &of) in read.iter().enumerate() {
            let weight = network.parameter(&format!("weight {at}"), &[channels, channels, 3]);
            let bias = network.parameter(&format!("bias {at}"), &[channels]);
            let y = network.operator(&map, &[values[of], weight, bias]).unwrap();
            values.push(y);
        }
        let seed = network.features("seed", &axes);
        let seeds: Vec<(Value, Value)> = values[1..].iter().map(|&own| (own, seed)).collect();
        let by = [network.parameters(), &values[..1]].concat();
        let pairs = network.gradients_from(&seeds, &by, Keep::All).unwrap();
        let gradients: Vec<Value> = pairs.into_iter().map(|(_, own)| own).collect();
        let outputs = [&values[1..], &gradients].concat();
        groups(&plan_joining(&network, &[&outputs], of_few))
    }

    #[test]
    fn maps_of_other_rows_and_of_many_channels_stay() {
        assert_eq!(maps(&[0, 0, 0], 3), [vec![3_usize], vec![6]]);
        assert_eq!(maps(&[0; 5], 3)[0], vec![4_usize]);
        // One of the other's result.
        assert!(maps(&[0, 1], 3)[0].is_empty());
        assert!(maps(&[0, 0], 5).concat().is_empty());
    }
}
