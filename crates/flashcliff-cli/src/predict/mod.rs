//! `flashcliff predict`: the time and memory of operators and of training steps, before they run.
//!
//! * `origin` - what a check says of itself.
//! * `steps` - the training steps of tasks.

mod origin;
mod steps;

use std::num::NonZero;
use std::process::ExitCode;

use cayley::Signature;
use clap::{Args, ValueEnum};
use flashcliff::Dims;
use flashcliff_bench::calibrate::{Calibrate, calibrate, held_out, measured};
use flashcliff_bench::calibration::Calibration;
use flashcliff_bench::cpu::Cpu;
use flashcliff_bench::measure::median;
use flashcliff_bench::predict::Prediction;
use flashcliff_bench::steps::StepRates;
use flashcliff_bench::{Case, Place, Selection};
use serde::Serialize;
use tracing::info;

use crate::device::{DeviceArgs, DeviceName};
use crate::error::Error;
use crate::output::{Align, Table, grouped, print};
use crate::steps::{Site, calibrate as steps_of};
use crate::train::TaskName;
use crate::tune::{Shape, TypeName};
use origin::Origin;

/// Predict time, memory and the largest batch of operators or of a task's training steps on this machine, from what `flashcliff calibrate` measured.
#[derive(Debug, Args)]
#[command(after_help = "\
Operators: the time is that of the calls and of the work of the operator, its operations and the elements that it moves, at a rate between those of
sizes that were measured: of so many elements, which decide the cache, and of so many channels, which decide what the start of a row costs. Memory
counts tensors, saved values, gradients and workspace. No tensor is made, so sizes may be larger than memory.

Training steps, of a task with --batch: the sum of all operations of the step, which `flashcliff profile` lists. Each was timed at batches that grow
by factors of two; between them its time lies on a straight line. Memory is the most that a training holds at once, with its model and the
optimiser, found in the same way. On a GPU this is the step that the host launches operation by operation; `captured` is the step as one CUDA
graph, as `flashcliff train` runs it.

--check measures cases of sizes that no rate comes from, and compares; with tasks it measures their steps at other batches, time and memory. Exit
status: 3 if the median or the largest error of the time is beyond its limit, or that of the memory beyond 2 or 5 percent.")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    device: DeviceArgs,

    /// Operators of the table, all if absent; or tasks: hulls, regression, volumes, gravity.
    #[arg(value_name = "OPERATOR|TASK")]
    names: Vec<String>,

    /// Algebra, as cl300 or 3,0,0; may be repeated.
    #[arg(long, value_name = "SIGNATURE", default_value = "cl300")]
    algebra: Vec<Signature>,

    /// Batch and channels, as 4096x512, or 4096x256x512 with other channels of the output; may be repeated.
    #[arg(long, value_name = "BATCHxCHANNELS")]
    shape: Vec<Shape>,

    /// Samples of a task's training step; may be repeated.
    #[arg(long, value_name = "N", conflicts_with = "shape")]
    batch: Vec<NonZero<usize>>,

    /// The type of all tensors; may be repeated.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Vec<TypeName>,

    /// The memory for the largest batch, in MiB; if absent, what the system or the GPU has free.
    #[arg(long, value_name = "MIB")]
    memory: Option<NonZero<u64>>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Compare predictions with measured times, at other sizes than the calibration's.
    #[arg(long, conflicts_with_all = ["shape", "batch", "memory"])]
    check: bool,

    /// The largest median error of --check that passes, in percent [default: 10; of tasks 12].
    #[arg(long, value_name = "PERCENT", requires = "check")]
    median: Option<f64>,

    /// The largest error of --check that passes, in percent [default: 40; of tasks 30].
    #[arg(long, value_name = "PERCENT", requires = "check")]
    worst: Option<f64>,

    /// Few repetitions and sizes, and rates that are measured now: to see that --check runs.
    #[arg(long, requires = "check")]
    quick: bool,
}

/// A prediction with the largest batch.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    prediction: Prediction,
    /// The largest batch that fits, if the memory is known.
    largest_batch: Option<usize>,
}

/// Runs the command. The status is 3 if a check misses its limits.
///
/// # Errors
/// A machine without rates, a name that no operator has.
pub(crate) fn run(args: &PredictArgs) -> Result<ExitCode, Error> {
    let tasks = tasks(
        &args.names,
        args.check,
        [!args.batch.is_empty(), !args.shape.is_empty()],
    )?;
    match (args.check, tasks.is_empty()) {
        (true, true) => return check(args),
        (true, false) => return check_steps(args, &tasks),
        (false, true) => {}
        (false, false) => return predict_steps(args, &tasks),
    }
    let selection = Selection {
        operators: args.names.clone(),
        algebras: args.algebra.clone(),
        shapes: args.shape.iter().map(|shape| shape.dims()).collect(),
        dtypes: args.dtype.iter().map(|name| name.dtype()).collect(),
        allocating: false,
        quick: false,
        gpu: args.device.name() != DeviceName::Cpu,
    };
    let cases = selection.cases()?;
    let place = place(args.device.name())?;
    let rates = Calibration::read(&place.kind()?)?;
    let available = available(args, &place)?;
    let mut rows = Vec::new();
    for case in &cases {
        let largest = |available| largest_batch(&place, case, available);
        rows.push(Row {
            prediction: rates.predict(&place, case)?,
            largest_batch: available.map(largest).transpose()?,
        });
    }
    match args.json {
        true => print(&(serde_json::to_string_pretty(&rows)? + "\n"))?,
        false => print(&text(&rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The tasks among the names: all or none. A batch is that of tasks, and only tasks are checked by name.
///
/// # Errors
/// [`Error::OutOfRange`] for other mixtures.
fn tasks(
    names: &[String],
    checks: bool,
    [has_batch, has_shape]: [bool; 2],
) -> Result<Vec<TaskName>, Error> {
    let known = names
        .iter()
        .map(|name| TaskName::from_str(name, false).ok());
    let tasks: Vec<TaskName> = known.flatten().collect();
    let all = names.join(" ");
    let refuse = |option, expected: &str| {
        Err(Error::OutOfRange {
            option,
            expected: expected.to_owned(),
            got: if all.is_empty() {
                "no name".to_owned()
            } else {
                all.clone()
            },
        })
    };
    match (tasks.len() == names.len(), has_batch, checks) {
        (true, false, false) if !names.is_empty() || !has_shape => {
            refuse("names", "operators with --shape, or tasks with --batch")
        }
        (true, true, _) if names.is_empty() => refuse("--batch", "the names of tasks"),
        (false, true, _) => refuse("--batch", "the names of tasks only"),
        (false, _, true) => refuse("--check", "no name, or the names of tasks"),
        (false, ..) if !tasks.is_empty() => refuse("names", "operators or tasks, not both"),
        (false, false, false) if !has_shape => refuse("names", "operators with --shape"),
        _ => Ok(tasks),
    }
}

/// The memory for the largest batch: what was given, or what the device has.
fn available(args: &PredictArgs, place: &Place) -> Result<Option<u128>, Error> {
    match args.memory {
        Some(mebibytes) => Ok(Some(u128::from(mebibytes.get()) << 20)),
        None => Ok(place.available()?),
    }
}

/// Predicts the training steps of tasks.
fn predict_steps(args: &PredictArgs, tasks: &[TaskName]) -> Result<ExitCode, Error> {
    let place = place(args.device.name())?;
    let rates = Calibration::read(&place.kind()?)?;
    let batches: Vec<usize> = args.batch.iter().map(|batch| batch.get()).collect();
    let rows = steps::predict(&rates, tasks, &batches, available(args, &place)?)?;
    match args.json {
        true => print(&(serde_json::to_string_pretty(&rows)? + "\n"))?,
        false => print(&steps::text(&rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The largest median and single errors of the memory of a step that pass, in percent.
const MEMORY_LIMITS: [f64; 2] = [2.0, 5.0];

/// Compares predictions of training steps with measured ones.
fn check_steps(args: &PredictArgs, tasks: &[TaskName]) -> Result<ExitCode, Error> {
    let site = Site::open(args.device.name())?;
    let kind = place(args.device.name())?.kind()?;
    let rates: Vec<StepRates> = match args.quick {
        true => {
            let new = tasks.iter().map(|&task| steps_of(&site, task, true));
            new.collect::<Result<_, _>>()?
        }
        false => {
            let known = Calibration::read(&kind)?;
            let known = tasks
                .iter()
                .map(|task| known.step(task.task().name()).cloned());
            known.collect::<Result<_, _>>()?
        }
    };
    let found = steps::check(&site, Origin::of(kind), &rates, tasks, args.quick)?;
    match args.json {
        true => print(&(serde_json::to_string_pretty(&found)? + "\n"))?,
        false => print(&found.text())?,
    }
    let [median, worst] = [args.median.unwrap_or(12.0), args.worst.unwrap_or(30.0)];
    let errors = [
        found.median,
        found.worst,
        found.memory_median,
        found.memory_worst,
    ];
    let limits = [median, worst, MEMORY_LIMITS[0], MEMORY_LIMITS[1]];
    let mut pairs = errors.iter().zip(limits);
    let is_met = pairs.all(|(error, limit)| 100.0 * error <= limit);
    Ok(ExitCode::from(if is_met { 0 } else { 3 }))
}

fn place(name: DeviceName) -> Result<Place, Error> {
    match name {
        DeviceName::Cpu => Ok(Place::Cpu),
        #[cfg(feature = "cuda")]
        DeviceName::Cuda(ordinal) => Ok(Place::Gpu(flashcliff::Device::cuda(ordinal)?)),
        #[cfg(not(feature = "cuda"))]
        DeviceName::Cuda(_) => Err(flashcliff_candle::Error::BuiltWithoutCuda.into()),
    }
}

/// The largest batch of a case that fits into so many bytes.
fn largest_batch(place: &Place, case: &Case, available: u128) -> Result<usize, Error> {
    let operator = case.bind()?;
    let bytes = place.peak(&operator, case.dtype, case.passes)?;
    Ok(operator.largest_batch(&case.dims, available, |dims: &Dims| bytes(dims)))
}

fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("case", Align::Left),
        ("ms", Align::Right),
        ("least ms", Align::Right),
        ("class", Align::Left),
        ("MB moved", Align::Right),
        ("Mflop", Align::Right),
        ("peak MiB", Align::Right),
        ("largest batch", Align::Right),
        ("rates of", Align::Left),
    ]);
    for Row {
        prediction,
        largest_batch,
    } in rows
    {
        table.row([
            prediction.case.clone(),
            format!("{:.4}", prediction.seconds * 1e3),
            format!("{:.4}", prediction.least_seconds * 1e3),
            prediction.class.name().to_owned(),
            format!("{:.2}", prediction.bytes as f64 / 1e6),
            format!("{:.2}", prediction.flops as f64 / 1e6),
            format!("{:.2}", prediction.peak_bytes as f64 / f64::from(1 << 20)),
            largest_batch.map_or(String::new(), grouped),
            prediction.by_algebra.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

/// A prediction beside the measured time.
#[derive(Debug, Serialize)]
struct Checked {
    case: String,
    predicted_seconds: f64,
    measured_seconds: f64,
    /// The difference over the measured time.
    error: f64,
}

/// The errors of all predictions.
#[derive(Debug, Serialize)]
struct Errors {
    #[serde(flatten)]
    origin: Origin,
    median: f64,
    worst: f64,
    cases: Vec<Checked>,
}

fn check(args: &PredictArgs) -> Result<ExitCode, Error> {
    match args.device.name() {
        DeviceName::Cpu => check_on(args, &mut Cpu::new(args.quick)),
        DeviceName::Cuda(ordinal) => check_on_gpu(args, ordinal),
    }
}

#[cfg(feature = "cuda")]
fn check_on_gpu(args: &PredictArgs, ordinal: usize) -> Result<ExitCode, Error> {
    let mut gpu = flashcliff_bench::cuda::Gpu::new(ordinal, args.quick)?;
    check_on(args, &mut gpu)
}

#[cfg(not(feature = "cuda"))]
fn check_on_gpu(_: &PredictArgs, _: usize) -> Result<ExitCode, Error> {
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}

fn check_on(args: &PredictArgs, target: &mut impl Calibrate) -> Result<ExitCode, Error> {
    let rates = match args.quick {
        true => calibrate(target, true, |_| {})?,
        false => Calibration::read(&target.kind()?)?,
    };
    let place = target.place();
    let mut cases = Vec::new();
    for case in held_out(target, args.quick)? {
        target.check_room(&case)?;
        let predicted = rates.predict(&place, &case)?.seconds;
        let measured = measured(target, &case, args.quick)?;
        info!("{}", case.name());
        cases.push(Checked {
            case: case.name(),
            predicted_seconds: predicted,
            measured_seconds: measured,
            error: (predicted - measured).abs() / measured,
        });
    }
    let errors = || cases.iter().map(|case| case.error);
    let found = Errors {
        origin: Origin::of(target.kind()?),
        median: median(errors().collect()),
        worst: errors().fold(0.0, f64::max),
        cases,
    };
    match args.json {
        true => print(&(serde_json::to_string_pretty(&found)? + "\n"))?,
        false => print(&of_errors(&found))?,
    }
    let [median, worst] = [args.median.unwrap_or(10.0), args.worst.unwrap_or(40.0)];
    let is_met = 100.0 * found.median <= median && 100.0 * found.worst <= worst;
    Ok(ExitCode::from(if is_met { 0 } else { 3 }))
}

fn of_errors(errors: &Errors) -> String {
    let mut table = Table::new(&[
        ("case", Align::Left),
        ("predicted ms", Align::Right),
        ("measured ms", Align::Right),
        ("error %", Align::Right),
    ]);
    for case in &errors.cases {
        table.row([
            case.case.clone(),
            format!("{:.4}", case.predicted_seconds * 1e3),
            format!("{:.4}", case.measured_seconds * 1e3),
            format!("{:.1}", 100.0 * case.error),
        ]);
    }
    let (median, worst) = (100.0 * errors.median, 100.0 * errors.worst);
    format!(
        "{}\nmedian error {median:.1} %, largest {worst:.1} %\n",
        table.render()
    )
}
