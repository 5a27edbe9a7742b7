//! Programs as static data: what a generated file says about one.

use super::stage::Stage;

/// The kernels of one algebra.
pub struct Kernels {
    /// (p, q, r).
    pub signature: (usize, usize, usize),
    /// Every program.
    pub programs: &'static [&'static Program],
}

/// The kernels of a program.
pub struct Program {
    /// The digest of the program, by which it is found.
    pub digest: u128,
    /// The name of the program, for messages.
    pub name: &'static str,
    /// The stages.
    pub plan: Plan,
    /// Operations per lane.
    pub flops: usize,
}

/// The stages of a program, in order.
pub struct Plan {
    /// The number of components of each cut; 0 for one that is not stored.
    pub cuts: &'static [usize],
    /// How many sums over the channels of a row the program has.
    pub row_sums: usize,
    /// How many of the row sums, the first ones, an earlier program saved.
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
    /// Whether its lanes are the scalar channels, not the channels.
    pub is_of_scalars: bool,
    /// The lane tensors that it reads.
    pub inputs: &'static [Slot],
    /// The lane tensors that it writes.
    pub outputs: &'static [Slot],
    /// The parameters that it reads, by number.
    pub params: &'static [usize],
    /// The sums over the batch to which it adds, by number.
    pub sums: &'static [usize],
    /// The row sums that it reads, by number.
    pub rows: &'static [usize],
    /// The row sums that it forms, by number.
    pub row_sums: &'static [usize],
}

/// A lane tensor of a program.
#[derive(Clone, Copy)]
pub enum Slot {
    /// An input or output of the operator, by number.
    External(usize),
    /// A cut, kept for one row.
    Cut(usize),
}
