//! Times and memory of training steps at several batches, for `calibrate` and `predict`.
//!
//! * [`Site`] - the device that the steps run on.
//! * `batches` - the batches that are measured, and others that predictions are tried on.
//! * `operations` - the operations of recorded steps.
//! * `memory` - the most memory that a training holds at once.

mod batches;
mod memory;
mod operations;

use candle_core::Device;
use flashcliff_bench::steps::StepRates;
use flashcliff_candle::capture::{Capture, Step};

use crate::device::{DeviceArgs, DeviceName};
use crate::error::Error;
use crate::profile::measure::{self, mean};
use crate::train::{Play, PrecisionName, Rehearsal, TaskName};

pub(crate) use batches::held_out;
pub(crate) use memory::peak;
use operations::{List, in_order, mean_of, together, total};

/// The seconds that the steps of a batch take about, and the least and the largest number of them.
const EFFORT: (f64, usize, usize) = (0.04, 6, 60);
/// The times that all batches are measured. A disturbance of the machine hits one of them.
const SWEEPS: usize = 2;
/// The rows of captured steps that are timed.
const ROWS: usize = 3;

/// The device that training steps run on.
#[derive(Debug)]
pub(crate) struct Site {
    name: DeviceName,
    device: Device,
}

/// What a step takes without a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seconds {
    /// Seconds of a step that the host launches.
    pub(crate) launched: f64,
    /// Seconds of a captured step; `None` on the CPU, and if it cannot be captured.
    pub(crate) captured: Option<f64>,
}

impl Seconds {
    /// The lesser one of each kind.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            launched: self.launched.min(other.launched),
            captured: least(self.captured, other.captured),
        }
    }
}

impl Site {
    /// # Errors
    /// A GPU that does not exist; a program without CUDA.
    pub(crate) fn open(name: DeviceName) -> Result<Self, Error> {
        let device = DeviceArgs::of(name).open()?;
        Ok(Self { name, device })
    }

    /// A site on which nothing can run.
    #[cfg(test)]
    fn unopened(name: DeviceName) -> Self {
        let device = Device::Cpu;
        Self { name, device }
    }

    pub(crate) fn name(&self) -> DeviceName {
        self.name
    }

    #[cfg(feature = "cuda")]
    fn device(&self) -> &Device {
        &self.device
    }

    fn is_gpu(&self) -> bool {
        self.name != DeviceName::Cpu
    }

    fn rehearsal(&self, task: TaskName, batch: usize) -> Result<Rehearsal, Error> {
        let play = Play {
            task,
            batch: Some(batch),
            precision: PrecisionName::Highest,
        };
        Rehearsal::new(play, self.name, &self.device)
    }
}

/// The number of times that all batches are measured. A GPU does nothing else meanwhile, but its host does.
pub(crate) fn sweeps(quick: bool) -> usize {
    if quick { 1 } else { SWEEPS }
}

/// So many steps as last about as long as [`EFFORT`] says.
fn count(rehearsal: &Rehearsal, quick: bool) -> Result<usize, Error> {
    let mut step = rehearsal.step(Capture::Off);
    rehearsal.time(&mut step)?;
    let once = rehearsal.time(&mut step)?.max(1e-6);
    let (seconds, least, most) = EFFORT;
    Ok(match quick {
        true => 2,
        false => ((seconds / once) as usize).clamp(least, most),
    })
}

/// The times of a batch's steps.
#[derive(Default)]
struct Times {
    operations: List,
    /// Seconds of a captured step, if there is one.
    captured: Option<f64>,
}

impl Times {
    /// Measures the steps of a batch.
    fn measure(site: &Site, task: TaskName, batch: usize, quick: bool) -> Result<Self, Error> {
        let rehearsal = site.rehearsal(task, batch)?;
        let count = count(&rehearsal, quick)?;
        let mut step = measure::warm(&rehearsal)?;
        let steps = measure::recorded(&rehearsal, &mut step, count)?;
        let mut operations = mean_of(&steps.iter().map(in_order).collect::<Vec<_>>());
        let mut captured = None;
        if site.is_gpu() {
            let seconds = without_profile(&rehearsal, &mut step, count)?;
            scale(&mut operations, seconds.launched);
            captured = seconds.captured;
        }
        Ok(Self {
            operations,
            captured,
        })
    }

    /// The lesser ones of both.
    fn least(self, other: Self) -> Self {
        let is_less =
            self.operations.is_empty() || total(&other.operations) < total(&self.operations);
        Self {
            operations: if is_less {
                other.operations
            } else {
                self.operations
            },
            captured: least(self.captured, other.captured),
        }
    }
}

/// The lesser of two times, if there are any.
fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().min_by(f64::total_cmp)
}

/// Measures the operations of a task's step at several batches, on a GPU captured steps too.
///
/// # Errors
/// The errors of candle and of CUDA.
pub(crate) fn calibrate(site: &Site, task: TaskName, quick: bool) -> Result<StepRates, Error> {
    let batches = batches::calibrated(site, task, quick);
    let mut best: Vec<Times> = batches.iter().map(|_| Times::default()).collect();
    for _ in 0..sweeps(quick) {
        for (best, &batch) in best.iter_mut().zip(batches) {
            let times = Times::measure(site, task, batch, quick)?;
            *best = std::mem::take(best).least(times);
        }
    }
    // Memory of a transformer grows evenly, and its steps take long.
    let peak_batches = match task {
        TaskName::Gravity => batches.to_vec(),
        // The workspaces of matrix products are others from batch to batch, by tens of megabytes, so batches lie close.
        _ if site.is_gpu() => batches::between(batches, 16),
        _ => batches::between(batches, 4),
    };
    let peaks = peak_batches.iter();
    let peaks = peaks.map(|&batch| peak(site, task, batch, false));
    let peaks: Vec<usize> = peaks.collect::<Result<_, _>>()?;
    let captured: Option<Vec<f64>> = best.iter().map(|times| times.captured).collect();
    let operations: Vec<List> = best.into_iter().map(|times| times.operations).collect();
    Ok(StepRates {
        task: task.task().name().to_owned(),
        batches: batches.to_vec(),
        peak_batches,
        peak_bytes: peaks.into_iter().map(|bytes| bytes as f64).collect(),
        operations: together(&operations),
        captured_seconds: captured.unwrap_or_default(),
    })
}

/// Makes a list last so many seconds. On a GPU marks of a profile are work for the host, and each operation takes its share of them.
fn scale(list: &mut List, seconds: f64) {
    let factor = seconds / total(list);
    list.iter_mut().for_each(|(_, own)| *own *= factor);
}

/// The seconds of a step without a profile: the mean of the fastest quarter of so many.
fn without_profile(
    rehearsal: &Rehearsal,
    step: &mut Step<'_>,
    count: usize,
) -> Result<Seconds, Error> {
    let launched = mean(&measure::plain(rehearsal, step, count)?);
    let captured = measure::captured(rehearsal, ROWS)?;
    Ok(Seconds { launched, captured })
}

/// The seconds of a step without a profile.
///
/// # Errors
/// The errors of candle and of CUDA.
pub(crate) fn seconds(
    site: &Site,
    task: TaskName,
    batch: usize,
    quick: bool,
) -> Result<Seconds, Error> {
    let rehearsal = site.rehearsal(task, batch)?;
    let count = count(&rehearsal, quick)?;
    without_profile(&rehearsal, &mut measure::warm(&rehearsal)?, count)
}
