//! From a program to the order in which a row is computed.
//!
//! A row is computed in *stages*, each one pass over its channels. A stage starts where values of
//! a row must be complete (a sum over channels) or where the program is cut. What a stage leaves
//! for later ones is a cut, kept for one row, or a row sum. Between passes over the whole tensor
//! nothing is kept but the inputs and the row sums: everything else is recomputed.
//!
//! Stages of equal structure are equal, whatever program they come from: the product of `sgp` is
//! also the first stage of `sgp_rms`, of its gradient and of CGENN's layer, and is emitted once.

mod levels;
mod packing;
mod stage;
mod values;

use crate::ir::Program;

pub use packing::Packing;
pub use stage::{Body, Plan, Source, Stage, Target, Write};
pub use values::{Fusion, Values};

/// The plan of a program.
pub fn plan(program: &Program) -> Plan {
    stage::plan(program, &levels::levels(program))
}
