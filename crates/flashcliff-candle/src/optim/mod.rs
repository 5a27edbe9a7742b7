//! Optimisers whose state can be saved.
//!
//! * `adam` - Adam, AdamW and Lion.
//! * `options` - their options.
//! * `clip` - adaptive clipping.
//! * `scale` - the scale of the loss, for gradients of 16 bits.
//! * `schedule` - the learning rate over the steps.
//! * `cpu`, `gpu` - the arithmetic of a step, and the moments.

mod adam;
mod clip;
mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod options;
mod scale;
mod schedule;

pub use adam::{Adam, Refusals};
pub(crate) use cpu::number;
pub use options::{AdamOptions, Rule};
pub use scale::{LossScale, LossScaleOptions, LossScaleState};
pub use schedule::{Schedule, ScheduleShape};
