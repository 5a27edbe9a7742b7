//! Gradient checkpointing: a plan that keeps the values between its blocks only.
//!
//! A network marks where its blocks begin ([`Builder::block`](super::plan::Builder::block)). Values that a later block
//! reads are kept as ever. All others are needed by one block, so blocks *share* memory for them:
//!
//! ```text
//! forward    block 0, 1, 2     each overwrites what the block before left in the shared memory
//! backward   block 2           its values are still there
//!            block 1, 0        their values are computed again first, by the same kernels from the same numbers
//! ```
//! So gradients are the same bit for bit. Sums that an operator saves for its backward pass are a few numbers a row; they
//! are kept too, and so an operator whose output is kept is not run again.

use std::cmp::Reverse;

use super::plan::{Plan, ValueId};

/// The memory of the values of a plan, and what its backward pass computes again.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The first node of each block, in order.
    starts: Vec<usize>,
    /// For each value the one whose memory it lies in: itself, or the first of those that share.
    memory_of: Vec<usize>,
    /// For each value the number of elements of its own memory; 0 if it lies in that of another.
    lens: Vec<usize>,
    /// For each node the nodes that run again before its backward pass.
    again: Vec<Vec<usize>>,
}

impl Blocks {
    /// Each value in memory of its own, for a plan whose blocks begin at some nodes.
    pub(super) fn new(starts: Vec<usize>, lens: Vec<usize>, nodes: usize) -> Self {
        Self {
            starts,
            memory_of: (0..lens.len()).collect(),
            lens,
            again: vec![Vec::new(); nodes],
        }
    }

    /// The place of the memory of a value.
    pub(super) fn memory(&self, value: ValueId) -> usize {
        self.memory_of[value.0]
    }

    /// For each place of memory its number of elements.
    pub(super) fn lens(&self) -> &[usize] {
        &self.lens
    }

    /// The nodes that run again, in order, before the backward pass of a node.
    pub(super) fn again(&self, node: usize) -> &[usize] {
        &self.again[node]
    }

    /// Gives the values of a block memory that blocks before it have, the largest value the largest. What is too small grows, and what is
    /// missing is added.
    fn share(&mut self, mut values: Vec<usize>, pool: &mut Vec<usize>) {
        values.sort_by_key(|&value| Reverse(self.lens[value]));
        pool.sort_by_key(|&memory| Reverse(self.lens[memory]));
        for (at, value) in values.into_iter().enumerate() {
            let Some(&memory) = pool.get(at) else {
                pool.push(value);
                continue;
            };
            let len = std::mem::take(&mut self.lens[value]);
            self.lens[memory] = self.lens[memory].max(len);
            self.memory_of[value] = memory;
        }
    }

    /// The block of a node.
    fn of(&self, node: usize) -> usize {
        self.starts.partition_point(|&start| start <= node)
    }
}

impl Plan {
    /// This plan, with memory that blocks share.
    pub(super) fn checkpointed(mut self) -> Self {
        let block_of: Vec<usize> = (0..self.nodes.len()).map(|at| self.blocks.of(at)).collect();
        let shared = self.shared(&block_of);
        let last = block_of.last().copied();
        // Memory that blocks share, of the type of the features and of that of the model.
        let mut pools = [Vec::new(), Vec::new()];
        let mut first = 0;
        while first < self.nodes.len() {
            let block = block_of[first];
            let end = first + block_of[first..].partition_point(|&of| of == block);
            let value = |at: usize| self.nodes[at].output.value.0;
            let own: Vec<usize> = (first..end).filter(|&at| shared[value(at)]).collect();
            for (wide, pool) in pools.iter_mut().enumerate() {
                let values = own.iter().map(|&at| value(at));
                let values = values.filter(|&value| usize::from(self.values[value].wide) == wide);
                self.blocks.share(values.collect(), pool);
            }
            if last != Some(block) {
                self.blocks.again[end - 1] = own;
            }
            first = end;
        }
        self
    }

    /// For each value whether the block that makes it is the only one that reads it. A value with more room than its node fills keeps the
    /// zeros there.
    fn shared(&self, block_of: &[usize]) -> Vec<bool> {
        let mut maker = vec![None; self.values.len()];
        let mut shared = vec![false; self.values.len()];
        for (node, &block) in self.nodes.iter().zip(block_of) {
            for input in &node.inputs {
                let value = input.value.0;
                shared[value] &= maker[value] == Some(block);
            }
            let value = node.output.value.0;
            maker[value] = Some(block);
            shared[value] = self.values[value].len == node.output.len();
        }
        // The error reads the prediction.
        shared[self.prediction.0] = false;
        shared
    }
}
