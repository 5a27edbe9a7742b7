//! Operators as static data: what a generated file says about a program.

use super::stage::Stage;

/// The kernels of one algebra.
pub(crate) struct Kernels {
    /// (p, q, r).
    pub(crate) signature: (usize, usize, usize),
    /// Every operator.
    pub(crate) programs: &'static [&'static Program],
}

/// An operator: its tensors and its two passes.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) formula: &'static str,
    /// The grades of the left and right operand and of the output, as bit sets.
    pub(crate) left: u16,
    pub(crate) right: u16,
    pub(crate) output: u16,
    /// Lane inputs: name and number of components.
    pub(crate) inputs: &'static [(&'static str, usize)],
    /// Per-channel parameters: name and values per channel.
    pub(crate) params: &'static [(&'static str, usize)],
    pub(crate) output_components: usize,
    pub(crate) forward: Plan,
    /// Its inputs are the forward inputs and the gradient of the output; its outputs the
    /// gradients of the inputs.
    pub(crate) backward: Plan,
    /// Operations per lane of the two passes.
    pub(crate) flops: [usize; 2],
}

/// The stages of a pass, in order.
pub(crate) struct Plan {
    /// The number of components of each cut; 0 for one that is not stored.
    pub(crate) cuts: &'static [usize],
    pub(crate) row_sums: usize,
    /// How many of the row sums, the first ones, the forward pass saved.
    pub(crate) saved_row_sums: usize,
    pub(crate) stages: &'static [StageCall],
}

/// A stage and what its slots stand for.
pub(crate) struct StageCall {
    pub(crate) stage: &'static Stage,
    pub(crate) inputs: &'static [Slot],
    pub(crate) outputs: &'static [Slot],
    pub(crate) params: &'static [usize],
    pub(crate) param_grads: &'static [usize],
    pub(crate) rows: &'static [usize],
    pub(crate) row_sums: &'static [usize],
}

/// A lane tensor of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    /// An input or output of the operator, by number.
    External(usize),
    /// A cut, kept for one row.
    Cut(usize),
}
