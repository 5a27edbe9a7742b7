//! Operators as static data: what a generated file says about a program.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::stage::Stage;

/// The kernels of one algebra.
pub struct Kernels {
    /// (p, q, r).
    pub signature: (usize, usize, usize),
    /// Every operator.
    pub programs: &'static [&'static Program],
}

/// An operator: its tensors and its two passes.
pub struct Program {
    /// The first part of the key by which it is looked up; the rest are the grades.
    pub name: &'static str,
    /// The formula.
    pub formula: &'static str,
    /// The grades of the left operand, as a bit set.
    pub left: u16,
    /// The grades of the right operand, as a bit set.
    pub right: u16,
    /// The grades of the output, as a bit set.
    pub output: u16,
    /// Lane inputs: name and number of components.
    pub inputs: &'static [(&'static str, usize)],
    /// Per-channel parameters: name and values per channel.
    pub params: &'static [(&'static str, usize)],
    /// The order in which a caller gives inputs and parameters.
    pub arguments: &'static [Argument],
    /// The components of the output.
    pub output_components: usize,
    /// From the inputs to the output.
    pub forward: Plan,
    /// Its inputs are the forward inputs and the gradient of the output; its outputs the
    /// gradients of the inputs.
    pub backward: Plan,
    /// Operations per lane of the two passes.
    pub flops: [usize; 2],
    /// The interpreted form of the program, for tiers and types that it was not compiled for.
    pub interpreted: Interpreted,
}

/// A program that is made when it is first needed. No lock is involved, so a forked child waits for nobody.
#[derive(Debug)]
pub struct Interpreted(AtomicPtr<Program>);

impl Interpreted {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The program that was made.
    pub fn get(&self) -> Option<&'static Program> {
        // SAFETY: null, or from `set`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Keeps a program. If two threads make it at once, one of the two is kept; both are right.
    pub fn set(&self, program: &'static Program) {
        let program: *const Program = program;
        self.0.store(program.cast_mut(), Ordering::Release);
    }
}

impl Default for Interpreted {
    fn default() -> Self {
        Self::new()
    }
}

/// The stages of a pass, in order.
pub struct Plan {
    /// The number of components of each cut; 0 for one that is not stored.
    pub cuts: &'static [usize],
    /// How many sums over the channels of a row the pass forms.
    pub row_sums: usize,
    /// How many of the row sums, the first ones, the forward pass saved.
    pub saved_row_sums: usize,
    /// The stages, in order.
    pub stages: &'static [StageCall],
}

impl Plan {
    /// Whether the stages are interpreted; all are or none.
    pub fn is_interpreted(&self) -> bool {
        self.stages.iter().any(|call| call.stage.code.is_some())
    }
}

/// A stage and what its slots stand for.
pub struct StageCall {
    /// The stage.
    pub stage: &'static Stage,
    /// The lane tensors that it reads.
    pub inputs: &'static [Slot],
    /// The lane tensors that it writes.
    pub outputs: &'static [Slot],
    /// The parameters that it reads, by number.
    pub params: &'static [usize],
    /// The parameters to whose gradients it adds, by number.
    pub param_grads: &'static [usize],
    /// The row sums that it reads, by number.
    pub rows: &'static [usize],
    /// The row sums that it forms, by number.
    pub row_sums: &'static [usize],
}

/// An argument of an operator, by its number among the lane inputs or the parameters of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A lane input.
    Input(usize),
    /// A per-channel parameter.
    Param(usize),
}

/// A lane tensor of a pass.
#[derive(Clone, Copy)]
pub enum Slot {
    /// An input or output of the operator, by number.
    External(usize),
    /// A cut, kept for one row.
    Cut(usize),
}
