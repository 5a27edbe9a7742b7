//! Gradients of parameters in the order in which the backward pass completes them.
//!
//! Ranks average gradients while the backward pass goes on: a *bucket* of gradients as soon as its last one is there. A
//! parameter has one use in a plan, so its gradient is complete behind the backward pass of one node.

use super::plan::{Plan, Wanted};

/// Parameters whose gradients are complete behind the backward pass of a node, and were not behind that of an earlier bucket.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The node.
    pub(super) node: usize,
    pub(super) parameters: Vec<usize>,
}

impl Plan {
    /// All parameters in at most so many buckets of about the same size, in the order of the backward pass. The last one is there even without
    /// parameters.
    pub(super) fn buckets(&self, most: usize) -> Vec<Bucket> {
        let lens: Vec<usize> = self
            .parameters
            .iter()
            .map(|tensor| tensor.elem_count())
            .collect();
        let share = lens.iter().sum::<usize>().div_ceil(most.max(1));
        let (mut left, mut len) = (lens.len(), 0);
        let (mut buckets, mut parameters) = (Vec::new(), Vec::new());
        for (node, wanted) in self.wanted.iter().enumerate().rev() {
            for wanted in wanted {
                if let Wanted::Parameter(parameter) = *wanted {
                    parameters.push(parameter);
                    (left, len) = (left - 1, len + lens[parameter]);
                }
            }
            let is_full = len >= share && !parameters.is_empty();
            if left == 0 || is_full {
                let parameters = std::mem::take(&mut parameters);
                buckets.push(Bucket { node, parameters });
                len = 0;
            }
            if left == 0 {
                break;
            }
        }
        buckets
    }
}
