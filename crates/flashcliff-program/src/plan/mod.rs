//! Plans: the order in which a row of a program is computed.
//!
//! A row is computed in *stages*, each of which is one pass over its channels. A new stage starts where values of a row
//! must be complete (after a sum over channels) or where the program is cut. A stage leaves cuts, which are kept for
//! one row, and row sums for later stages. Between passes over the whole tensor only the inputs and the row sums are
//! kept; everything else is recomputed.
//!
//! Stages of equal structure are equal, whichever programs they come from. The product of `sgp` is also the first stage
//! of `sgp_rms`, of its gradient and of CGENN's layer, and it is emitted once.

mod calls;
mod dedup;
mod levels;
mod limits;
mod needed;
mod packing;
mod refusal;
mod stage;
mod values;

use crate::ir::Program;

pub use dedup::{Distinct, Sharing, StageName};
pub use limits::{Excess, Limits};
pub use packing::Packing;
pub use refusal::Refusal;
pub use stage::{Body, Plan, RowNumber, Source, Stage, Target, Write};
pub use values::{Fusion, Values};

/// The plan of a program.
pub fn plan(program: &Program) -> Plan {
    stage::plan(program, &levels::levels(program))
}

/// The plan of a program for CPUs, on which a stage does not see the registers of another: gates and slopes that several stages need are
/// computed once. The program that comes with the plan has cuts for them, and computes the same.
pub fn plan_for_cpu(program: &Program) -> (Program, Plan) {
    let program = calls::called_once(program);
    let plan = plan(&program);
    (program, plan)
}
