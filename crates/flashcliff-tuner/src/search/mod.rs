//! The search for faster choices, with the clock and the operator behind a trait.
//!
//! * `measure` - times two choices in turns.
//! * `gate` - checks that results are right.
//! * `descent` - searches one coordinate after the other.
//!
//! Nothing here needs a GPU.

mod descent;
mod gate;
mod measure;

pub(crate) use descent::{Bench, Coordinate, Step, descend};
pub use descent::{Effort, Verdict};
pub use gate::Wrong;
pub(crate) use gate::{Expected, Gate, Tolerance, unit};
pub use measure::Times;
pub(crate) use measure::in_turns;
