//! `flashcliff calibrate`: measures the rates of this machine, and keeps them.

use clap::{Args, ValueEnum};
use flashcliff_bench::cpu;
use tracing::info;

use crate::error::Error;
use crate::output::{Align, Table, print};
use crate::steps;
use crate::train::TaskName;

/// Measure the rates of this machine once, for `flashcliff predict`; less than a minute.
#[derive(Debug, Args)]
#[command(after_help = "\
Measured are a call with next to no work, a task for every thread, multiply-adds in f32 and f64, additions and copies of working sets from the
smallest cache to memory, every operator of the table at three sizes, compiled and interpreted, and the operations of the training steps of
all tasks at several batches. They are kept in $FLASHCLIFF_CACHE_DIR/rates, or
else in flashcliff/rates in the cache folder of the system, in a file for each processor and number of threads. Measure while the machine is idle.")]
pub(crate) struct CalibrateArgs {
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
/// A file that cannot be written.
pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Error> {
    let mut rates = cpu::calibrate(args.quick, |what| info!("{what}"))?;
    for &task in TaskName::value_variants() {
        info!("training steps of {}", task.task().name());
        rates.steps.push(steps::calibrate(task, args.quick)?);
    }
    if !args.quick {
        let path = rates.store()?;
        info!("kept in {}", path.display());
    }
    if args.json {
        return print(&(serde_json::to_string_pretty(&rates)? + "\n"));
    }
    let mut text = format!(
        "{}, {}, {} threads\na call {:.2} us, a task for every thread {:.2} us, multiply-adds {:.1} Gflop/s in f32 and {:.1} in f64\n\n",
        rates.machine.processor,
        rates.simd,
        rates.machine.threads,
        rates.call_seconds * 1e6,
        rates.pool_seconds * 1e6,
        rates.flops[0] * 1e-9,
        rates.flops[1] * 1e-9,
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
