//! The bytes that must be held at once, and the peak on the heap of the program.

use std::sync::Arc;

use candle_core::Device;
use flashcliff::Pass;
use flashcliff_bench::report::Memory;
use flashcliff_candle::timeline::Operation;

use super::cases::{NetworkCase, Run};
use super::work::Work;
use crate::error::Error;
use crate::heap;

/// The number of runs in which the peak is measured. Later ones allocate what the next one does.
const RUNS: usize = 3;
/// The largest ratio of the peak to the bytes that must be held that is aimed at. The rest is workspace, packed operands and small tensors.
const TARGET: f64 = 1.25;
/// The largest batch that warms the buffers of threads.
const WARM: usize = 8;

/// The bytes that must be held at once: parameters, the tensors of the largest operation; for gradients also the
/// gradients of parameters and what forward passes keep; for a training step the moments of Adam too.
pub(super) fn counted(
    case: &NetworkCase,
    operations: &[Arc<Operation>],
    parameters: usize,
) -> usize {
    let parameters = parameters * case.parameter_type().bytes();
    let forward = operations.iter();
    let forward = forward.filter(|operation| operation.phase == Some(Pass::Forward));
    let tensors = forward.clone();
    let tensors = tensors.map(|operation| operation.tensor_bytes - operation.parameter_bytes);
    // A backward pass makes a gradient for each tensor of its forward pass.
    let largest = tensors.max().unwrap_or(0);
    let kept = forward.map(|operation| operation.output_bytes + operation.saved_bytes);
    let kept: usize = kept.sum();
    match case.run {
        Run::Forward | Run::Inference => parameters + largest,
        Run::Both => 2 * parameters + kept + largest,
        Run::Step => 4 * parameters + kept + largest,
    }
}

/// The most memory at once, from the making of the case on, beside the bytes that must be held.
///
/// # Errors
/// The errors of the work; on a GPU the errors of CUDA.
pub(super) fn measure(
    case: &NetworkCase,
    device: &Device,
    counted: usize,
) -> Result<Memory, Error> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(gpu) => on_gpu(case, device, gpu.cuda_stream().context().ordinal(), counted),
        _ => on_heap(case, counted),
    }
}

/// The most memory in the pool of the GPU.
#[cfg(feature = "cuda")]
fn on_gpu(
    case: &NetworkCase,
    device: &Device,
    ordinal: usize,
    counted: usize,
) -> Result<Memory, Error> {
    let pool = flashcliff::Device::cuda(ordinal)?;
    device.synchronize()?;
    pool.reset_pool_peak()?;
    let before = pool.pool_memory()?.used;
    let mut work = Work::new(case, device)?;
    work.run()?;
    work.run()?;
    device.synchronize()?;
    let peak = pool.pool_memory()?.used_peak.saturating_sub(before);
    let peak = usize::try_from(peak).unwrap_or(usize::MAX);
    Ok(Memory::new(counted, peak, target(case)))
}

/// The ratio that is aimed at; none of a case so small that parameters and lists are most of it.
fn target(case: &NetworkCase) -> Option<f64> {
    (!case.is_quick).then_some(TARGET)
}

/// The most memory on the heap.
fn on_heap(case: &NetworkCase, counted: usize) -> Result<Memory, Error> {
    let device = Device::Cpu;
    let small = NetworkCase {
        batch: case.batch.min(WARM),
        ..case.clone()
    };
    let warm = || Work::new(&small, &device)?.run();
    let train = || {
        let mut work = Work::new(case, &device)?;
        for _ in 0..RUNS {
            work.run()?;
        }
        Ok(work)
    };
    let (peak, mut work) = heap::peak(warm, train)?;
    let heap = heap::count();
    work.run()?;
    let (allocated, largest_block) = (heap.asked(), heap.largest());
    Ok(Memory::new(counted, peak, target(case)).with_step(allocated, largest_block))
}
