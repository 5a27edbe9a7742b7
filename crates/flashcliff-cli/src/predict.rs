//! `flashcliff predict`: the time and memory of operators, before they run.

use std::process::ExitCode;

use cayley::Signature;
use clap::Args;
use flashcliff::{Dims, memory};
use flashcliff_bench::calibration::Calibration;
use flashcliff_bench::measure::median;
use flashcliff_bench::predict::{Prediction, peak_bytes};
use flashcliff_bench::{Case, Selection, cpu};
use serde::Serialize;
use tracing::info;

use crate::error::Error;
use crate::memory::room_for;
use crate::output::{Align, Table, grouped, print};
use crate::tune::{Shape, TypeName};

/// Predict time, memory and the largest batch of operators on this CPU, from the rates that `flashcliff calibrate` measured.
#[derive(Debug, Args)]
#[command(after_help = "\
The time is that of the calls and of the work of the operator, its operations and the elements that it moves, at a rate between those of sizes that were
measured: of so many elements, which decide the cache, and of so many channels, which decide what the start of a row costs. Memory counts tensors, saved values, gradients and workspace. No tensor is
made, so sizes may be larger than memory.

--check measures cases of sizes that no rate comes from, and compares. Exit status: 3 if the median or the largest error is beyond its limit.")]
pub(crate) struct PredictArgs {
    /// Operators of the table; all if absent.
    #[arg(value_name = "OPERATOR")]
    operator: Vec<String>,

    /// Algebra, as cl300 or 3,0,0; may be repeated.
    #[arg(long, value_name = "SIGNATURE", default_value = "cl300")]
    algebra: Vec<Signature>,

    /// Batch and channels, as 4096x512, or 4096x256x512 with other channels of the output; may be repeated.
    #[arg(long, value_name = "BATCHxCHANNELS", required_unless_present = "check")]
    shape: Vec<Shape>,

    /// The type of all tensors; may be repeated.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Vec<TypeName>,

    /// The memory for the largest batch, in MiB; if absent, what the system has.
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Compare predictions with measured times, at other sizes than the calibration's.
    #[arg(long, conflicts_with_all = ["operator", "shape", "memory"])]
    check: bool,

    /// The largest median error of --check that passes, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 10.0,
        requires = "check"
    )]
    median: f64,

    /// The largest error of --check that passes, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 40.0,
        requires = "check"
    )]
    worst: f64,

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
    if args.check {
        return check(args);
    }
    let selection = Selection {
        operators: args.operator.clone(),
        algebras: args.algebra.clone(),
        shapes: args.shape.iter().map(|shape| shape.dims()).collect(),
        dtypes: args.dtype.iter().map(|name| name.dtype()).collect(),
        quick: false,
        gpu: false,
    };
    let cases = selection.cases()?;
    let rates = Calibration::read(&cpu::kind())?;
    let given = args.memory.map(|mebibytes| u128::from(mebibytes) << 20);
    let available = given.or_else(memory::available);
    let mut rows = Vec::new();
    for case in &cases {
        let largest = |available| largest_batch(case, available);
        rows.push(Row {
            prediction: rates.predict(case)?,
            largest_batch: available.map(largest).transpose()?,
        });
    }
    match args.json {
        true => print(&(serde_json::to_string_pretty(&rows)? + "\n"))?,
        false => print(&text(&rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The largest batch of a case that fits into so many bytes.
fn largest_batch(case: &Case, available: u128) -> Result<usize, Error> {
    let operator = case.bind()?;
    let bytes = |dims: &Dims| peak_bytes(&operator, dims, case.dtype, case.passes);
    Ok(operator.largest_batch(&case.dims, available, bytes))
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
    median: f64,
    worst: f64,
    cases: Vec<Checked>,
}

fn check(args: &PredictArgs) -> Result<ExitCode, Error> {
    let rates = match args.quick {
        true => cpu::calibrate(true, |_| {})?,
        false => Calibration::read(&cpu::kind())?,
    };
    let mut cases = Vec::new();
    for case in cpu::held_out(args.quick)? {
        room_for(case.name(), case.memory()?)?;
        let predicted = rates.predict(&case)?.seconds;
        let measured = cpu::measured(&case, args.quick)?;
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
        median: median(errors().collect()),
        worst: errors().fold(0.0, f64::max),
        cases,
    };
    match args.json {
        true => print(&(serde_json::to_string_pretty(&found)? + "\n"))?,
        false => print(&of_errors(&found))?,
    }
    let is_met = 100.0 * found.median <= args.median && 100.0 * found.worst <= args.worst;
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
