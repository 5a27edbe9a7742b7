//! Gradients of parameters in the order in which a plan completes them.
//!
//! Ranks average gradients while the backward pass goes on: a *bucket* of gradients as soon as its last one is there.

use flashcliff_network::Plan;

/// Outputs that are complete after a call, and were not complete after the call of an earlier bucket.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The call.
    pub(super) call: usize,
    /// The gradients, by their numbers among the outputs of the plan.
    pub(super) outputs: Vec<usize>,
}

/// The gradients of a plan, which are all outputs but the first, in at most so many buckets of about the same size,
/// in the order of the calls. The last one is there even without gradients.
pub(super) fn buckets(plan: &Plan, most: usize) -> Vec<Bucket> {
    let len = |output: usize| {
        let tensor = plan.tensor(plan.outputs()[output]);
        tensor.map_or(0, |(shape, _)| shape.iter().product())
    };
    let mut order: Vec<(usize, usize)> = (1..plan.outputs().len())
        .filter_map(|output| Some((plan.completed_by(output)?, output)))
        .collect();
    order.sort_unstable();
    let share = order
        .iter()
        .map(|&(_, output)| len(output))
        .sum::<usize>()
        .div_ceil(most.max(1));
    let (mut buckets, mut outputs, mut filled) = (Vec::new(), Vec::new(), 0);
    for (at, &(call, output)) in order.iter().enumerate() {
        outputs.push(output);
        filled += len(output);
        let next = order.get(at + 1);
        let ends_call = next.is_none_or(|&(next, _)| next != call);
        if next.is_none() || ends_call && filled >= share {
            let outputs = std::mem::take(&mut outputs);
            buckets.push(Bucket { call, outputs });
            filled = 0;
        }
    }
    if buckets.is_empty() {
        let call = plan.call_count().saturating_sub(1);
        buckets.push(Bucket { call, outputs });
    }
    buckets
}
