//! The most memory that a training holds at once: on the heap of the program, or in the pool of a GPU.

use flashcliff_candle::capture::{Capture, Step};

use super::Site;
use crate::device::DeviceName;
use crate::error::Error;
use crate::heap;
use crate::train::{Rehearsal, TaskName};

/// The steps in which the peak is counted. Later ones allocate what the next one does.
const COUNTED: usize = 3;
/// The steps after which one is captured, and replayed, where that is possible.
const CAPTURED: usize = 6;

/// The most bytes that a training holds at once, from the making of its model on. On a GPU its steps are captured if `captured`.
///
/// # Errors
/// The errors of candle and of CUDA.
pub(crate) fn peak(
    site: &Site,
    task: TaskName,
    batch: usize,
    captured: bool,
) -> Result<usize, Error> {
    let train = |batch, capture, steps| train(site, task, batch, capture, steps);
    let warm = || train(batch.min(8), Capture::Off, 1).map(drop);
    match site.name() {
        DeviceName::Cpu => {
            // Large products have buffers that small ones have not.
            drop(train(batch, Capture::Off, 1)?);
            let (peak, _) = heap::peak(warm, || train(batch, Capture::Off, COUNTED))?;
            Ok(peak)
        }
        DeviceName::Cuda(ordinal) => {
            warm()?;
            in_pool(site, ordinal, || match captured {
                true => train(batch, Capture::Auto, CAPTURED),
                false => train(batch, Capture::Off, COUNTED),
            })
        }
    }
}

/// A model in training, after some steps. The memory of a graph goes with the step that was captured.
fn train(
    site: &Site,
    task: TaskName,
    batch: usize,
    capture: Capture,
    steps: usize,
) -> Result<(Rehearsal, Step<'static>), Error> {
    let rehearsal = site.rehearsal(task, batch)?;
    let mut step = rehearsal.step(capture);
    for _ in 0..steps {
        rehearsal.time(&mut step)?;
    }
    Ok((rehearsal, step))
}

/// The most bytes that work took of the pool of a GPU and of the graphs on it. The result of the work is dropped behind the count.
#[cfg(feature = "cuda")]
fn in_pool<T>(
    site: &Site,
    ordinal: usize,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<usize, Error> {
    let gpu = flashcliff::Device::cuda(ordinal)?;
    site.device().synchronize()?;
    gpu.reset_pool_peak()?;
    // Graphs of earlier work may still have memory, which their peak begins at.
    let before = gpu.pool_memory()?;
    let held = work()?;
    site.device().synchronize()?;
    let memory = gpu.pool_memory()?;
    drop(held);
    // What a graph uses comes on top of what is held outside of it while it runs.
    let of_graphs = memory
        .graph_used_peak
        .saturating_sub(before.graph_used_peak);
    let peak = memory.used_peak.max(memory.used + of_graphs);
    Ok(usize::try_from(peak.saturating_sub(before.used)).unwrap_or(usize::MAX))
}

#[cfg(not(feature = "cuda"))]
fn in_pool<T>(_: &Site, _: usize, _: impl FnOnce() -> Result<T, Error>) -> Result<usize, Error> {
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}
