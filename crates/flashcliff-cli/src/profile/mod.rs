//! `flashcliff profile`: what the time of a task's training steps is spent on.
//!
//! * `measure` - steps with and without a profile, in turns.
//! * `rows` - operations with their times, bytes and share of the roofline.
//! * `report` - all of it, as JSON and as a table.
//! * `explain` - the pages of the plans of a step.
//! * `trace` - one step for Chrome's tracing and Perfetto.

mod explain;
mod measure;
mod report;
mod rows;
mod trace;

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use flashcliff_bench::cpu::Cpu;

use crate::cli::from_one;
use crate::device::{DeviceArgs, DeviceName};
use crate::error::Error;
use crate::output::{self, Overwrite, print};
use crate::train::{Play, PrecisionName, Rehearsal, TaskName};

use report::Report;

/// Say which operations of a task's training steps take the time, and how far each is from what the machine could reach.
#[derive(Debug, Args)]
#[command(after_help = "\
Steps of the task's network with its usual optimiser run on made-up data, with and without a profile in turns; nothing is kept of them. A step with
a profile notes the times of few operations, so that it lasts about as long as one without: the rows come from several steps, and what a note takes
is taken off. All numbers are those of one step: times are relative to the steps without a profile just before and behind, and a step lasts as long as
the faster half of those, since other work of the machine slows the others.

A row is an operation: calls with the same operator, pass, shapes and type. Its time is its own, without that of operations within it, so the rows
add up to the step. Rows that are not ours: `adam`, the optimiser; `batch`, the choice of the samples; `candle's operations`, of both passes, where
a network has no plan; `the rest`, what nothing reports, as checks. Matrix products are part of mv_linear and fcgp_norm.

MB and Mflop are a model: each tensor is moved once, operations are counted from the terms of the algebra. `roofline` is the least time over the
time taken: that of a call, and the longer one of an addition that moves as many bytes and of the operations at the rate of multiply-adds, on
a GPU of matrix products, all measured in this run. What takes longest names the limit. `saved`: made by a forward pass for the backward
pass; `held`: inputs and output that stay for it, each row counted by itself.

On a GPU times are between events on its stream around each operation, of steps that are launched one operation at a time, so they include waiting for
the host. The time of a captured step, as `train` runs them, is beside them.

--trace writes one step for chrome://tracing or https://ui.perfetto.dev.")]
pub(crate) struct ProfileArgs {
    /// Task whose steps are profiled.
    task: TaskName,

    /// Samples of a step [default: that of `train`].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    batch: Option<NonZero<usize>>,

    /// Steps that the profile puts together [default: 20 to 100, as many as two seconds allow].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<u16>>)]
    steps: Option<NonZero<u16>>,

    /// Rounding of training steps on a GPU.
    #[arg(long, value_name = "PRECISION", default_value = "highest")]
    precision: PrecisionName,

    #[command(flatten)]
    device: DeviceArgs,

    /// Also write the rows to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write a step to a file, as a trace for Chrome or Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Also print the calls of a step in order: shapes, bytes, operations and least times by the measured rates; on a GPU the kernels.
    #[arg(long)]
    explain: bool,

    #[command(flatten)]
    overwrite: Overwrite,
}

/// Runs the command.
///
/// # Errors
/// Settings that the task or the device does not have, files that cannot be written, the errors of the device.
pub(crate) fn run(args: &ProfileArgs) -> Result<(), Error> {
    let create = |path| args.overwrite.create(path);
    let json = args.json.as_deref().map(create).transpose()?;
    let trace = args.trace.as_deref().map(create).transpose()?;
    output::check_apart(("--json", json.as_ref()), ("--trace", trace.as_ref()))?;
    let play = Play {
        task: args.task,
        batch: args.batch.map(usize::from),
        precision: args.precision,
    };
    let (device, name) = (args.device.open()?, args.device.name());
    let rehearsal = Rehearsal::new(play, name, &device)?;
    let steps = measure::steps(
        &rehearsal,
        args.steps.map(|steps| steps.get().into()),
        name != DeviceName::Cpu,
    )?;
    let report = match name {
        DeviceName::Cpu => Report::new(play, name, &rehearsal, &steps, &mut Cpu::new(false))?,
        DeviceName::Cuda(ordinal) => on_gpu(play, ordinal, &rehearsal, &steps)?,
    };
    if let Some(file) = json {
        file.commit(output::json(&report)?.as_bytes())?;
    }
    if let Some(file) = trace {
        file.commit(trace::chrome(&steps.sampled.timeline, name)?.as_bytes())?;
    }
    print(&report.text())?;
    match args.explain {
        true => print(&explain::pages(
            &rehearsal,
            &report.machine(args.precision),
        )?),
        false => Ok(()),
    }
}

#[cfg(feature = "cuda")]
fn on_gpu(
    play: Play,
    ordinal: usize,
    rehearsal: &Rehearsal,
    steps: &measure::Steps,
) -> Result<Report, Error> {
    let stream = rehearsal.device().as_cuda_device()?.cuda_stream();
    let mut gpu = flashcliff_bench::cuda::Gpu::new(ordinal, stream, false)?;
    Report::new(play, DeviceName::Cuda(ordinal), rehearsal, steps, &mut gpu)
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: Play, _: usize, _: &Rehearsal, _: &measure::Steps) -> Result<Report, Error> {
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}
