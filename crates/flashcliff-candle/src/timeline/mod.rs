//! Timelines of training steps: the operations of a step, and the time that each takes.
//!
//! While [`record`] runs work, the parts of this crate report what they do: nodes of candle's graph, the operations
//! of an [`Objective`](crate::objective::Objective), passes of candle, the optimiser. A report is a *mark*: a moment,
//! and the operation that runs from then on. So the times of all operations add up to the whole exactly, and an
//! operation within another one takes its time from it. Without a recording an operation asks once whether there is
//! one.
//!
//! * [`Operation`] - an operation, with its bytes and floating-point operations.
//! * [`Timeline`] - the slices of time between marks.
//! * [`Sampler`] - a timeline put together from equal steps that carry few marks each.
//! * `windows` - which marks such a step carries, and the timeline that they make together.
//! * `recorder` - the marks of the calling thread.
//! * `clock` - moments of the host, and events on the stream of a GPU.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use flashcliff_candle::models::{Architecture, Model};
//! use flashcliff_candle::objective::Objective;
//! use flashcliff_candle::timeline;
//!
//! let model = Model::new(Architecture::Regression { width: 16 }, 7, DType::F32)?;
//! let mut objective = Objective::new(&model, 4, 1)?;
//! let batch = [
//!     Tensor::ones((4, 2, 5), DType::F32, &Device::Cpu)?,
//!     Tensor::ones(4, DType::F32, &Device::Cpu)?,
//! ];
//! let (loss, timeline) = timeline::record(&Device::Cpu, || objective.evaluate(&batch))?;
//! loss?;
//! let of_products = timeline.slices().iter().filter(|slice| slice.operation.operator == "steerable_product");
//! assert_eq!(of_products.count(), 2); // a forward and a backward pass
//! let sum: f64 = timeline.slices().iter().map(|slice| slice.seconds).sum();
//! assert!((sum / timeline.seconds() - 1.0).abs() < 1e-9);
//! # Ok::<(), flashcliff_candle::Error>(())
//! ```

mod clock;
mod operation;
mod recorder;
mod sampler;
#[cfg(test)]
mod tests;
mod windows;

use std::sync::Arc;

use candle_core::Device;

use crate::Error;

pub use operation::Operation;
pub(crate) use operation::{Sizes, graph_pass};
pub(crate) use recorder::{around, begin, is_recording, within};
pub use sampler::{Sampled, Sampler};

/// A time in which one operation ran.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Slice {
    /// The operation.
    pub operation: Arc<Operation>,
    /// Whether the operation began here. It goes on in later slices, after operations within it.
    pub begins: bool,
    /// Seconds from the beginning of the recording; on a GPU by its clock.
    pub start: f64,
    /// Seconds that the slice lasted; on a GPU by its clock, with the time in which it waited for the host.
    pub seconds: f64,
    /// Seconds from the beginning of the recording, by the clock of the host.
    pub host_start: f64,
    /// Seconds that the slice lasted on the host; on a GPU it launches the work only.
    pub host_seconds: f64,
}

/// The slices of a recording, one after another without gaps.
#[derive(Clone, Debug)]
pub struct Timeline {
    slices: Vec<Slice>,
}

impl Timeline {
    /// The slices in order.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The length of the recording: the sum of all slices.
    pub fn seconds(&self) -> f64 {
        let end = |slice: &Slice| slice.start + slice.seconds;
        self.slices.last().map_or(0.0, end)
    }
}

/// Runs work, and records what the operations of this crate that it calls on this thread take, on a device. On a GPU
/// the call waits before and after the work. Time that no operation reports belongs to [`Operation::rest`].
///
/// A recording within another one takes its calls. A step that is [captured](crate::capture) reports nothing when it
/// is replayed, and while it is captured its events have no times: record eager steps.
///
/// # Errors
/// The errors of CUDA.
pub fn record<R>(device: &Device, work: impl FnOnce() -> R) -> Result<(R, Timeline), Error> {
    let recording = recorder::Recording::start(device)?;
    let done = work();
    Ok((done, recording.finish()?))
}
