//! Times and memory of training steps at several batches on the CPU, for `calibrate` and `predict`.

use std::sync::Arc;

use candle_core::Device;
use flashcliff_bench::steps::{OperationTimes, StepRates};
use flashcliff_candle::capture::Capture;
use flashcliff_candle::timeline::{Operation, Timeline};

use crate::device::DeviceName;
use crate::error::Error;
use crate::heap;
use crate::profile::measure::{self, mean};
use crate::train::{Play, PrecisionName, Rehearsal, TaskName};

/// The seconds that the steps of a batch take about, and the least and the largest number of them.
const EFFORT: (f64, usize, usize) = (0.1, 6, 60);
/// The times that all batches are measured. A disturbance of the machine hits one of them.
pub(crate) const SWEEPS: usize = 2;
/// The steps in which the peak of memory is counted. Later ones allocate what the next one does.
const COUNTED: usize = 3;

/// The batches that are measured.
fn batches(task: TaskName, quick: bool) -> &'static [usize] {
    match (task, quick) {
        (_, true) => &[2, 4],
        // A transformer, whose samples take as long as a hundred others.
        (TaskName::Gravity, _) => &[2, 4, 8, 16, 32, 64],
        // Near batches that are multiples of 32, which lie differently in memory, others too.
        _ => &[
            2, 4, 8, 16, 29, 32, 61, 64, 125, 128, 253, 256, 509, 512, 1021, 1024,
        ],
    }
}

/// Batches that no calibration has measured.
pub(crate) fn held_out(task: TaskName, quick: bool) -> &'static [usize] {
    match (task, quick) {
        (_, true) => &[3],
        (TaskName::Gravity, _) => &[3, 12, 24, 48],
        _ => &[3, 6, 12, 24, 48, 100, 192, 300, 384, 700],
    }
}

/// Batches from the least to the largest of some, each larger by a quarter or by one.
fn between(batches: &[usize]) -> Vec<usize> {
    let (Some(&first), Some(&last)) = (batches.first(), batches.last()) else {
        return Vec::new();
    };
    let next = |&batch: &usize| (batch < last).then(|| (batch + (batch / 4).max(1)).min(last));
    std::iter::successors(Some(first), next).collect()
}

fn play(task: TaskName, batch: usize) -> Play {
    Play {
        task,
        batch: Some(batch),
        precision: PrecisionName::Highest,
    }
}

fn rehearsal(task: TaskName, batch: usize) -> Result<Rehearsal, Error> {
    Rehearsal::new(play(task, batch), DeviceName::Cpu, &Device::Cpu)
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

/// Measures the operations of a task's step at several batches.
///
/// # Errors
/// The errors of candle.
pub(crate) fn calibrate(task: TaskName, quick: bool) -> Result<StepRates, Error> {
    let batches = batches(task, quick);
    let mut places: Vec<Place> = Vec::new();
    for sweep in 0..if quick { 1 } else { SWEEPS } {
        for (at, &batch) in batches.iter().enumerate() {
            let rehearsal = rehearsal(task, batch)?;
            let steps = measure::recorded(&rehearsal, count(&rehearsal, quick)?)?;
            let seconds: Vec<Vec<(Arc<Operation>, f64)>> = steps.iter().map(in_order).collect();
            let list = seconds.first().map(Vec::as_slice).unwrap_or_default();
            places.resize_with(list.len(), Place::default);
            for (index, (place, (operation, _))) in places.iter_mut().zip(list).enumerate() {
                let all: Vec<f64> = seconds.iter().map(|step| step[index].1).collect();
                place.operation = Some(operation.clone());
                match (sweep, place.seconds.get_mut(at)) {
                    (0, _) => place.seconds.push(mean(&all)),
                    (_, Some(known)) => *known = known.min(mean(&all)),
                    (_, None) => {}
                }
            }
        }
    }
    let peak_batches = between(batches);
    let peaks = peak_batches.iter().map(|&batch| peak(task, batch));
    let peaks: Vec<usize> = peaks.collect::<Result<_, _>>()?;
    Ok(StepRates {
        task: task.task().name().to_owned(),
        batches: batches.to_vec(),
        peak_batches,
        peak_bytes: peaks.into_iter().map(|bytes| bytes as f64).collect(),
        operations: together(places),
    })
}

/// A place in the list of operations of a step.
#[derive(Debug, Default)]
struct Place {
    /// The operation at the largest batch.
    operation: Option<Arc<Operation>>,
    /// The seconds for each batch.
    seconds: Vec<f64>,
}

/// The operations of a step in order, with their seconds.
fn in_order(timeline: &Timeline) -> Vec<(Arc<Operation>, f64)> {
    let mut list: Vec<(Arc<Operation>, f64)> = Vec::new();
    for slice in timeline.slices() {
        let same = list.iter_mut().rev();
        let same = same.filter(|(operation, _)| *operation == slice.operation);
        let known = same.take(usize::from(!slice.begins)).next();
        match known {
            Some((_, seconds)) => *seconds += slice.seconds,
            None => list.push((slice.operation.clone(), slice.seconds)),
        }
    }
    list
}

/// Adds up places of one operation.
fn together(places: Vec<Place>) -> Vec<OperationTimes> {
    let mut made: Vec<(Arc<Operation>, OperationTimes)> = Vec::new();
    for place in places {
        let Some(operation) = place.operation else {
            continue;
        };
        let known = made.iter_mut().find(|(known, _)| *known == operation);
        if let Some((_, times)) = known {
            let pairs = times.seconds.iter_mut().zip(&place.seconds);
            pairs.for_each(|(sum, seconds)| *sum += seconds);
            continue;
        }
        let times = OperationTimes {
            operator: operation.operator.clone(),
            algebra: operation.algebra.clone(),
            phase: operation
                .phase
                .map_or("", flashcliff::Pass::name)
                .to_owned(),
            shapes: operation.shapes.clone(),
            seconds: place.seconds,
        };
        made.push((operation, times));
    }
    made.into_iter().map(|(_, times)| times).collect()
}

/// The seconds of a step without a profile: the mean of the fastest quarter of many.
///
/// # Errors
/// The errors of candle.
pub(crate) fn seconds(task: TaskName, batch: usize, quick: bool) -> Result<f64, Error> {
    let rehearsal = rehearsal(task, batch)?;
    let steps = measure::plain(&rehearsal, count(&rehearsal, quick)?)?;
    Ok(mean(&steps))
}

/// The most bytes that a training holds at once, from the making of its model on.
///
/// # Errors
/// The errors of candle.
pub(crate) fn peak(task: TaskName, batch: usize) -> Result<usize, Error> {
    let train = |batch: usize, steps: usize| -> Result<Rehearsal, Error> {
        let rehearsal = rehearsal(task, batch)?;
        let mut step = rehearsal.step(Capture::Off);
        for _ in 0..steps {
            rehearsal.time(&mut step)?;
        }
        Ok(rehearsal)
    };
    let warm = || train(batch.min(8), 1).map(drop);
    // Large products have buffers that small ones have not.
    drop(train(batch, 1)?);
    let (peak, _) = heap::peak(warm, || train(batch, COUNTED))?;
    Ok(peak)
}
