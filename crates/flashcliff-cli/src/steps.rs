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
const EFFORT: (f64, usize, usize) = (0.04, 6, 60);
/// The times that all batches are measured. A disturbance of the machine hits one of them.
pub(crate) const SWEEPS: usize = 3;
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
    let mut best: Vec<List> = vec![List::new(); batches.len()];
    for _ in 0..if quick { 1 } else { SWEEPS } {
        for (best, &batch) in best.iter_mut().zip(batches) {
            let rehearsal = rehearsal(task, batch)?;
            let steps = measure::recorded(&rehearsal, count(&rehearsal, quick)?)?;
            let list = mean_of(&steps.iter().map(in_order).collect::<Vec<_>>());
            if best.is_empty() || total(&list) < total(best) {
                *best = list;
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
        operations: together(&best),
    })
}

/// The operations of a step in order, with their seconds.
type List = Vec<(Arc<Operation>, f64)>;

fn total(list: &[(Arc<Operation>, f64)]) -> f64 {
    list.iter().map(|(_, seconds)| seconds).sum()
}

/// The list of steps that have the same operations.
fn mean_of(steps: &[List]) -> List {
    let first = steps.first().cloned().unwrap_or_default();
    let place = |(index, (operation, _)): (usize, (Arc<Operation>, f64))| {
        let all: Vec<f64> = steps.iter().map(|step| step[index].1).collect();
        (operation, mean(&all))
    };
    first.into_iter().enumerate().map(place).collect()
}

/// The operations of a recorded step.
fn in_order(timeline: &Timeline) -> List {
    let mut list = List::new();
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

/// The operations with their seconds for each batch. Those that are equal at the largest batch are added up.
fn together(batches: &[List]) -> Vec<OperationTimes> {
    let mut made: Vec<(Arc<Operation>, OperationTimes)> = Vec::new();
    let largest = batches.last().map(Vec::as_slice).unwrap_or_default();
    for (place, (operation, _)) in largest.iter().enumerate() {
        // A step has the same operations at every batch.
        let at = |list: &List| list.get(place).map_or(0.0, |(_, seconds)| *seconds);
        let seconds: Vec<f64> = batches.iter().map(at).collect();
        if let Some((_, times)) = made.iter_mut().find(|(known, _)| known == operation) {
            let pairs = times.seconds.iter_mut().zip(&seconds);
            pairs.for_each(|(sum, seconds)| *sum += seconds);
            continue;
        }
        let phase = operation.phase.map_or("", flashcliff::Pass::name);
        let times = OperationTimes {
            operator: operation.operator.clone(),
            algebra: operation.algebra.clone(),
            phase: phase.to_owned(),
            shapes: operation.shapes.clone(),
            seconds,
        };
        made.push((operation.clone(), times));
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
