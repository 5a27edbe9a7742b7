//! Time and memory of the training steps of tasks.

use flashcliff::memory;
use flashcliff_bench::calibration::Calibration;
use flashcliff_bench::measure::median;
use flashcliff_bench::steps::{StepPrediction, StepRates};
use serde::Serialize;
use tracing::info;

use crate::error::Error;
use crate::output::{Align, Table, grouped};
use crate::steps;
use crate::train::TaskName;

/// A prediction with the largest batch.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    prediction: StepPrediction,
    /// The largest batch that fits, if the memory is known.
    largest_batch: Option<usize>,
}

/// The steps of tasks at some batches, with so many bytes of memory or what the system has.
///
/// # Errors
/// A task whose steps were not measured.
pub(super) fn predict(
    rates: &Calibration,
    tasks: &[TaskName],
    batches: &[usize],
    given: Option<u128>,
) -> Result<Vec<Row>, Error> {
    let available = given.or_else(memory::available);
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
    let mut table = Table::new(&[
        ("task", Align::Left),
        ("batch", Align::Right),
        ("step ms", Align::Right),
        ("forward ms", Align::Right),
        ("backward ms", Align::Right),
        ("rest ms", Align::Right),
        ("peak MiB", Align::Right),
        ("largest batch", Align::Right),
    ]);
    for Row {
        prediction,
        largest_batch,
    } in rows
    {
        table.row([
            prediction.task.clone(),
            grouped(prediction.batch),
            milliseconds(prediction.seconds),
            milliseconds(prediction.forward_seconds),
            milliseconds(prediction.backward_seconds),
            milliseconds(prediction.other_seconds),
            mebibytes(prediction.peak_bytes),
            largest_batch.map_or(String::new(), grouped),
        ]);
    }
    table.render()
}

/// A prediction beside what was measured.
#[derive(Debug, Serialize)]
struct Checked {
    task: String,
    batch: usize,
    predicted_seconds: f64,
    measured_seconds: f64,
    /// The difference of the times over the measured one.
    error: f64,
    predicted_bytes: f64,
    measured_bytes: f64,
    /// The difference of the bytes over the measured ones.
    memory_error: f64,
}

/// The errors of all predictions of steps.
#[derive(Debug, Serialize)]
pub(super) struct Errors {
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
pub(super) fn check(rates: &[StepRates], tasks: &[TaskName], quick: bool) -> Result<Errors, Error> {
    let all = || {
        let pairs = rates.iter().zip(tasks);
        pairs.flat_map(|(rates, &task)| {
            let batches = steps::held_out(task, quick).iter();
            batches.map(move |&batch| (rates, task, batch))
        })
    };
    // A disturbance of the machine hits one sweep.
    let mut least = vec![f64::INFINITY; all().count()];
    for _ in 0..if quick { 1 } else { steps::SWEEPS } {
        for ((rates, task, batch), least) in all().zip(&mut least) {
            info!("{} batch {batch}", rates.task);
            *least = least.min(steps::seconds(task, batch, quick)?);
        }
    }
    let mut checked = Vec::new();
    for ((rates, task, batch), seconds) in all().zip(least) {
        let predicted = rates.predict(batch);
        let bytes = steps::peak(task, batch)? as f64;
        checked.push(Checked {
            task: rates.task.clone(),
            batch,
            predicted_seconds: predicted.seconds,
            measured_seconds: seconds,
            error: (predicted.seconds - seconds).abs() / seconds,
            predicted_bytes: predicted.peak_bytes,
            measured_bytes: bytes,
            memory_error: (predicted.peak_bytes - bytes).abs() / bytes,
        });
    }
    let errors = |of: fn(&Checked) -> f64| -> Vec<f64> { checked.iter().map(of).collect() };
    let worst = |errors: Vec<f64>| errors.into_iter().fold(0.0, f64::max);
    Ok(Errors {
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
            ("predicted ms", Align::Right),
            ("measured ms", Align::Right),
            ("error %", Align::Right),
            ("predicted MiB", Align::Right),
            ("measured MiB", Align::Right),
            ("error %", Align::Right),
        ]);
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        for step in &self.steps {
            table.row([
                step.task.clone(),
                grouped(step.batch),
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
