//! `flashcliff calibrate`: measures the rates of this machine, and keeps them.

use clap::{Args, ValueEnum};
use flashcliff_bench::calibrate::{Calibrate, calibrate};
use flashcliff_bench::calibration::Calibration;
use flashcliff_bench::cpu::Cpu;
use tracing::info;

use crate::device::{DeviceArgs, DeviceName};
use crate::error::Error;
use crate::output::{Align, Table, print};
use crate::steps::{self, Site};
use crate::train::TaskName;

/// Measure the rates of this machine once, for `flashcliff predict`; less than a minute.
#[derive(Debug, Args)]
#[command(after_help = "\
Measured are a call with next to no work, a task for every thread, multiply-adds in f32 and f64, additions and copies of working sets from the
smallest cache to memory, every operator of the table on a grid of sizes, compiled and interpreted, and the operations of the training steps of
all tasks at several batches. They are kept in $FLASHCLIFF_CACHE_DIR/rates, or else in flashcliff/rates in the cache folder of the system, in a file
for each processor and number of threads. Measure while the machine is idle.

On a GPU times are those of captured calls with a second-level cache that other data fill, in f32, f64, bf16 and f16; operations are those of large
products of matrices. A training step is measured there launched operation by operation, and captured as a CUDA graph.")]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    device: DeviceArgs,

    /// Print the rates as JSON, with those of all operators.
    #[arg(long)]
    json: bool,

    /// Small tensors and few repetitions, and nothing is kept: to see that everything runs.
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
///
/// # Errors
/// A GPU that does not exist; a file that cannot be written.
pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Error> {
    let name = args.device.name();
    let mut rates = match name {
        DeviceName::Cpu => measured(args.quick, &mut Cpu::new(args.quick))?,
        DeviceName::Cuda(ordinal) => on_gpu(args.quick, ordinal)?,
    };
    let site = Site::open(name)?;
    for &task in TaskName::value_variants() {
        info!("training steps of {}", task.task().name());
        rates.steps.push(steps::calibrate(&site, task, args.quick)?);
    }
    if !args.quick {
        let path = rates.store()?;
        info!("kept in {}", path.display());
    } else {
        info!("not kept: --quick only shows that everything runs");
    }
    if args.json {
        return print(&(serde_json::to_string_pretty(&rates)? + "\n"));
    }
    let mut text = format!(
        "{}, a call {:.2} us, {}\n\n",
        device(&rates),
        rates.call_seconds * 1e6,
        operations(&rates),
    );
    let columns = ["working set KiB", "addition GB/s", "copy GB/s"];
    let mut table = Table::new(&columns.map(|name| (name, Align::Right)));
    for level in &rates.levels {
        table.row([
            (level.bytes >> 10).to_string(),
            format!("{:.1}", level.add * 1e-9),
            format!("{:.1}", level.copy * 1e-9),
        ]);
    }
    text += &table.render();
    print(&text)
}

fn measured(quick: bool, target: &mut impl Calibrate) -> Result<Calibration, Error> {
    Ok(calibrate(target, quick, |what| info!("{what}"))?)
}

#[cfg(feature = "cuda")]
fn on_gpu(quick: bool, ordinal: usize) -> Result<Calibration, Error> {
    measured(
        quick,
        &mut flashcliff_bench::cuda::Gpu::new(ordinal, quick)?,
    )
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: bool, _: usize) -> Result<Calibration, Error> {
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}

/// The device, and on a CPU what its threads cost.
fn device(rates: &Calibration) -> String {
    let machine = &rates.machine;
    match machine.is_gpu() {
        true => format!("{} ({})", machine.processor, machine.architecture),
        false => format!(
            "{}, {}, {} threads, a task for each {:.2} us",
            machine.processor,
            rates.simd,
            machine.threads,
            rates.pool_seconds * 1e6
        ),
    }
}

fn operations(rates: &Calibration) -> String {
    let what = match rates.machine.is_gpu() {
        true => "products of matrices",
        false => "multiply-adds",
    };
    let rates = rates.flops.iter();
    let rates: Vec<String> = rates
        .map(|(dtype, rate)| format!("{:.1} Gflop/s in {dtype}", rate * 1e-9))
        .collect();
    format!("{what} {}", rates.join(", "))
}
