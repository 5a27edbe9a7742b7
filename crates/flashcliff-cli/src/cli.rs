//! The command line as a whole: commands, options that all of them share, and what these set up.

use std::num::NonZero;

use clap::{Parser, Subcommand};
use flashcliff::simd::Tier;
use tracing_subscriber::EnvFilter;

use crate::algebra::AlgebraArgs;
use crate::bench::BenchArgs;
use crate::error::Error;
use crate::info::InfoArgs;
use crate::op::OpArgs;
use crate::train::TrainArgs;
use crate::tune::TuneArgs;

/// Clifford-algebra networks: train, run operators, show algebras, measure.
#[derive(Debug, Parser)]
#[command(name = "flashcliff", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Threads to use; all cores if absent. Results do not depend on it.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Only results and errors: no progress, no notes.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(TrainArgs),
    Algebra(AlgebraArgs),
    Op(OpArgs),
    Info(InfoArgs),
    Bench(BenchArgs),
    Tune(TuneArgs),
}

impl Cli {
    /// Sets up messages and threads, and checks the environment.
    ///
    /// # Errors
    /// A `FLASHCLIFF_SIMD` that names no tier of this CPU; threads that cannot be started.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let level = if self.quiet { "warn" } else { "info" };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .with_target(false)
            .without_time()
            .init();
        Tier::from_env().map_err(Error::Tier)?;
        let mut pool = rayon::ThreadPoolBuilder::new();
        if let Some(threads) = self.threads {
            pool = pool.num_threads(threads.get());
        }
        pool.build_global().map_err(Error::Threads)
    }
}
