//! Measures the CUDA kernels on this machine's first GPU, each beside a floor of the same run:
//! `cargo run --release -p flashcliff-benches --features cuda --bin gpu`.
//!
//! Before each run a buffer larger than the L2 cache is written. Variants take turns, and medians of
//! CUDA events are compared. Every case was compared with the CPU before, in the same process.

mod case;
mod check;
mod compiled;
mod error;
mod extra;
mod floors;
mod graph;
mod launch;
mod machine;
mod matmul;
mod report;
mod table;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use flashcliff::Device;

use error::Error;
use machine::Machine;
use report::Report;

/// Measures the CUDA kernels on the first GPU.
#[derive(Parser)]
#[command(name = "gpu")]
struct Arguments {
    /// Few samples, small tensors: shows that everything runs.
    #[arg(long)]
    quick: bool,
    /// Writes the results as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measures only kernels that are compiled when they are first used.
    #[arg(long)]
    compiled: bool,
    /// Prints the seconds of a first call in an algebra, such as 2,1,1; the program starts itself with this.
    #[arg(long, value_name = "P,Q,R")]
    first_call: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    if let Some(signature) = &arguments.first_call {
        return compiled::first_call(signature);
    }
    let device = Device::cuda(0)?;
    let machine = Machine::new(&device)?;
    let mut report = Report::new(&machine, arguments.quick);
    if arguments.compiled {
        compiled::measure(&device, arguments.quick, &mut report)?;
        return finish(&report, arguments);
    }
    // Launches are measured with cudarc's events first, then without.
    launch::measure(&device, launch::Tracking::On, &mut report)?;
    // SAFETY: from here on all memory is used on one stream, until that stream is waited for.
    unsafe { device.context().disable_event_tracking() };
    launch::measure(&device, launch::Tracking::Off, &mut report)?;
    table::measure(&device, &machine, arguments.quick, &mut report)?;
    graph::measure(&device, arguments.quick, &mut report)?;
    extra::measure(&device, &mut report)?;
    matmul::measure(&device, arguments.quick, &mut report)?;
    finish(&report, arguments)
}

fn finish(report: &Report, arguments: &Arguments) -> Result<(), Error> {
    report.print();
    match &arguments.out {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}
