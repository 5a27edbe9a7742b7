//! Optimisers whose state can be saved.
//!
//! * `adam` - Adam and AdamW.
//! * `options` - their options.
//! * `clip` - adaptive clipping.
//! * `schedule` - the learning rate over the steps.
//! * `cpu`, `gpu` - the arithmetic of a step, and the moments.

mod adam;
mod clip;
mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod options;
mod schedule;

pub use adam::{Adam, Refusals};
pub use options::AdamOptions;
pub use schedule::{Schedule, ScheduleShape};
