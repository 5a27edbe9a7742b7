//! Time and memory of the training steps of tasks.

use flashcliff_bench::calibration::Calibration;
use flashcliff_bench::measure::median;
use flashcliff_bench::steps::{StepPrediction, StepRates};
use serde::Serialize;
use tracing::info;

use super::origin::Origin;
use crate::error::Error;
use crate::output::{Align, Table, grouped};
use crate::steps::{self, Seconds, Site};
use crate::train::TaskName;

/// A prediction with the largest batch.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    prediction: StepPrediction,
    /// The largest batch that fits, if the memory is known.
    largest_batch: Option<usize>,
}

/// The steps of tasks at some batches, and the largest batches in so many bytes of memory, if they are known.
///
/// # Errors
/// A task whose steps were not measured.
pub(super) fn predict(
    rates: &Calibration,
    tasks: &[TaskName],
    batches: &[usize],
    available: Option<u128>,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for task in tasks {
        let step = rates.step(task.task().name())?;
        for &batch in batches {
            rows.push(Row {
                prediction: step.predict(batch),
                largest_batch: available.map(|bytes| step.largest_batch(bytes)),
            });
        }
    }
    Ok(rows)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.3}", 1e3 * seconds)
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.2}", bytes / f64::from(1 << 20))
}

pub(super) fn text(rows: &[Row]) -> String {
    // A step on a CPU is not captured.
    let has_captured = rows
        .iter()
        .any(|row| row.prediction.captured_seconds.is_some());
    let mut columns = vec![
        ("task", Align::Left),
        ("batch", Align::Right),
        ("step ms", Align::Right),
        ("forward ms", Align::Right),
        ("backward ms", Align::Right),
        ("rest ms", Align::Right),
        ("peak MiB", Align::Right),
        ("largest batch", Align::Right),
    ];
    if has_captured {
        columns.insert(CAPTURED_COLUMN, ("captured ms", Align::Right));
    }
    let mut table = Table::new(&columns);
    for Row {
        prediction,
        largest_batch,
    } in rows
    {
        let mut cells = vec![
            prediction.task.clone(),
            grouped(prediction.batch),
            milliseconds(prediction.seconds),
            milliseconds(prediction.forward_seconds),
            milliseconds(prediction.backward_seconds),
            milliseconds(prediction.other_seconds),
            mebibytes(prediction.peak_bytes),
            largest_batch.map_or(String::new(), grouped),
        ];
        if has_captured {
            let captured = prediction.captured_seconds;
            cells.insert(
                CAPTURED_COLUMN,
                captured.map_or("-".to_owned(), milliseconds),
            );
        }
        table.row(cells);
    }
    let mut text = table.render();
    for row in rows {
        let batch = row.prediction.batch;
        if let Some(largest) = row.largest_batch.filter(|&largest| largest < batch) {
            let task = &row.prediction.task;
            let (batch, largest) = (grouped(batch), grouped(largest));
            text += &format!("{task}: a batch of {batch} does not fit in memory; {largest} does\n");
        }
    }
    text
}

/// The place of the time of a captured step, behind the parts of a launched one.
const CAPTURED_COLUMN: usize = 6;

/// A number that was predicted, beside what was measured.
#[derive(Clone, Copy, Debug)]
struct Beside {
    predicted: f64,
    measured: f64,
}

impl Beside {
    /// The difference over the measured number.
    fn error(self) -> f64 {
        (self.predicted - self.measured).abs() / self.measured
    }
}

/// A prediction beside what was measured.
#[derive(Debug, Serialize)]
struct Checked {
    task: String,
    batch: usize,
    /// Whether the step is captured as a CUDA graph.
    captured: bool,
    predicted_seconds: f64,
    measured_seconds: f64,
    /// The difference of the times over the measured one.
    error: f64,
    predicted_bytes: f64,
    measured_bytes: f64,
    /// The difference of the bytes over the measured ones.
    memory_error: f64,
}

impl Checked {
    fn new(of: &StepPrediction, captured: bool, time: Beside, memory: Beside) -> Self {
        Self {
            task: of.task.clone(),
            batch: of.batch,
            captured,
            predicted_seconds: time.predicted,
            measured_seconds: time.measured,
            error: time.error(),
            predicted_bytes: memory.predicted,
            measured_bytes: memory.measured,
            memory_error: memory.error(),
        }
    }
}

/// The errors of all predictions of steps.
#[derive(Debug, Serialize)]
pub(super) struct Errors {
    #[serde(flatten)]
    origin: Origin,
    pub(super) median: f64,
    pub(super) worst: f64,
    pub(super) memory_median: f64,
    pub(super) memory_worst: f64,
    steps: Vec<Checked>,
}

/// Compares predictions of tasks with steps at batches that were not measured before.
///
/// # Errors
/// A task whose steps were not measured.
pub(super) fn check(
    site: &Site,
    origin: Origin,
    rates: &[StepRates],
    tasks: &[TaskName],
    quick: bool,
) -> Result<Errors, Error> {
    let all = || {
        let pairs = rates.iter().zip(tasks);
        pairs.flat_map(|(rates, &task)| {
            let batches = steps::held_out(site, task, quick).iter();
            batches.map(move |&batch| (rates, task, batch))
        })
    };
    // A disturbance of the machine hits one sweep.
    let mut least: Vec<Option<Seconds>> = vec![None; all().count()];
    for _ in 0..steps::sweeps(quick) {
        for ((rates, task, batch), least) in all().zip(&mut least) {
            info!("{} batch {batch}", rates.task);
            let now = steps::seconds(site, task, batch, quick)?;
            *least = Some(least.map_or(now, |before| before.least(now)));
        }
    }
    let mut checked = Vec::new();
    for ((rates, task, batch), measured) in all().zip(least) {
        let Some(measured) = measured else { continue };
        let of = rates.predict(batch);
        let beside = |predicted, measured| Beside {
            predicted,
            measured,
        };
        let memory = |captured| -> Result<Beside, Error> {
            let bytes = steps::peak(site, task, batch, captured)?;
            Ok(beside(of.peak_bytes, bytes as f64))
        };
        let launched = beside(of.seconds, measured.launched);
        checked.push(Checked::new(&of, false, launched, memory(false)?));
        if let (Some(predicted), Some(measured)) = (of.captured_seconds, measured.captured) {
            let captured = beside(predicted, measured);
            checked.push(Checked::new(&of, true, captured, memory(true)?));
        }
    }
    let errors = |of: fn(&Checked) -> f64| -> Vec<f64> { checked.iter().map(of).collect() };
    let worst = |errors: Vec<f64>| errors.into_iter().fold(0.0, f64::max);
    Ok(Errors {
        origin,
        median: median(errors(|step| step.error)),
        worst: worst(errors(|step| step.error)),
        memory_median: median(errors(|step| step.memory_error)),
        memory_worst: worst(errors(|step| step.memory_error)),
        steps: checked,
    })
}

impl Errors {
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&[
            ("task", Align::Left),
            ("batch", Align::Right),
            ("step", Align::Left),
            ("predicted ms", Align::Right),
            ("measured ms", Align::Right),
            ("error %", Align::Right),
            ("predicted MiB", Align::Right),
            ("measured MiB", Align::Right),
            ("error %", Align::Right),
        ]);
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        for step in &self.steps {
            let way = if step.captured {
                "captured"
            } else {
                "launched"
            };
            table.row([
                step.task.clone(),
                grouped(step.batch),
                way.to_owned(),
                milliseconds(step.predicted_seconds),
                milliseconds(step.measured_seconds),
                percent(step.error),
                mebibytes(step.predicted_bytes),
                mebibytes(step.measured_bytes),
                percent(step.memory_error),
            ]);
        }
        format!(
            "{}\ntime: median error {} %, largest {} %\nmemory: median error {} %, largest {} %\n",
            table.render(),
            percent(self.median),
            percent(self.worst),
            percent(self.memory_median),
            percent(self.memory_worst),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_does_not_fit_is_said_to() {
        let row = |batch, largest_batch| Row {
            prediction: StepPrediction {
                task: "hulls".to_owned(),
                batch,
                seconds: 1.0,
                forward_seconds: 0.4,
                backward_seconds: 0.5,
                other_seconds: 0.1,
                captured_seconds: None,
                peak_bytes: 1e6,
            },
            largest_batch,
        };
        let rows = [
            row(9, Some(10)),
            row(10, Some(10)),
            row(11, None),
            row(11, Some(10)),
        ];
        let text = text(&rows);
        let said: Vec<&str> = text.lines().filter(|line| line.contains("fit")).collect();
        assert_eq!(
            said,
            ["hulls: a batch of 11 does not fit in memory; 10 does"]
        );
    }
}
