//! `flashcliff bench`: times the operators beside a floor, the time to move as many bytes, measured in the same run.
//!
//! * `cases` - the cases to measure.
//! * `operator`, `step` - running an operator, and a training step of the hulls model.
//! * `floor` - a streaming addition by all threads.
//! * `measure` - timing in turns, with medians.
//! * `reference` - the same results by the formulas in f64, without kernels.
//! * `report` - the table and the JSON.

mod cases;
mod measure;
mod operator;
mod reference;
mod report;
mod step;

use std::path::PathBuf;

use clap::Args;
use flashcliff_candle::output_file::OutputFile;
use tracing::info;

use crate::error::Error;
use crate::output::print;

use measure::Effort;

/// Measure the operators and the training step, beside the time it takes to move as many bytes.
#[derive(Debug, Args)]
#[command(after_help = "\
The floor is a streaming addition by all threads that moves as many bytes as the operator reads and writes at least, each tensor once.
Operator and floor are timed in turns and their medians compared. Every result is checked against the formula in f64 on some rows; a wrong one
is an error. Targets hold for two threads.

The memory of a training step is counted by the allocator of the program: the most that was held at once, from the making of the model on, beside
what must be held: parameters, the moments of Adam, and the activations that the backward pass reads. What the matrix products keep for each
thread for the life of the process, a buffer of the size of a cache, is not part of it.")]
pub(crate) struct BenchArgs {
    /// Also write the results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Small tensors and few repetitions: to see that everything runs, not how fast.
    #[arg(long)]
    quick: bool,

    /// Only the cases whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A wrong result, a name that no case has, a file that cannot be written.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    let json = args.json.as_deref().map(OutputFile::create).transpose()?;
    let cases = cases::all(args.quick);
    let wanted = |name: &str| args.only.as_deref().is_none_or(|part| name.contains(part));
    if !cases.iter().any(|case| wanted(&case.name)) {
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        return Err(Error::UnknownCase {
            expected: names.join(", "),
            got: args.only.clone().unwrap_or_default(),
        });
    }
    let effort = Effort::new(args.quick);
    let mut report = report::Report::new();
    for case in cases.iter().filter(|case| wanted(&case.name)) {
        info!("{}", case.name);
        report.push(case.run(effort)?);
    }
    if let Some(file) = json {
        file.commit(report.json()?.as_bytes())?;
    }
    print(&report.text())
}
