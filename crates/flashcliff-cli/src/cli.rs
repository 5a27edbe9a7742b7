//! The command line as a whole: commands, the options that all of them share, and the settings that these make.

use std::num::{IntErrorKind, NonZero, ParseIntError};
use std::str::FromStr;

use clap::{Parser, Subcommand};
use flashcliff::{environment, threads};
use tracing_subscriber::EnvFilter;

use crate::algebra::AlgebraArgs;
use crate::bench::BenchArgs;
use crate::data::DataArgs;
use crate::dynamics::DynamicsArgs;
use crate::error::Error;
use crate::eval::EvalArgs;
use crate::info::InfoArgs;
use crate::interrupt;
use crate::messages;
use crate::op::OpArgs;
use crate::profile::ProfileArgs;
use crate::rollout::RolloutArgs;
use crate::train::TrainArgs;
use crate::tune::TuneArgs;

/// Clifford-algebra networks: train, run operators, show algebras, measure.
#[derive(Debug, Parser)]
#[command(name = "flashcliff", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Threads to use, at most 8 for each CPU; RAYON_NUM_THREADS if absent, or OMP_NUM_THREADS, or one for each CPU.
    /// Results do not depend on it.
    #[arg(long, global = true, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    threads: Option<NonZero<usize>>,

    /// Only results and errors: no progress, no notes.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(TrainArgs),
    Eval(EvalArgs),
    Rollout(RolloutArgs),
    Dynamics(DynamicsArgs),
    Algebra(AlgebraArgs),
    Op(OpArgs),
    Data(DataArgs),
    Info(InfoArgs),
    Bench(BenchArgs),
    Profile(ProfileArgs),
    Tune(TuneArgs),
}

/// Reads a whole number from 1 on, in a type that has no zero.
///
/// # Errors
/// The words of an error: what was expected, and what came.
pub(crate) fn from_one<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: N::Err| match error.kind() {
        IntErrorKind::PosOverflow => format!("expected a smaller number, got `{text}`"),
        _ => format!("expected a whole number from 1 on, got `{text}`"),
    })
}

impl Cli {
    /// Sets up messages and threads, and checks the environment.
    ///
    /// # Errors
    /// An environment variable with an invalid value; threads that cannot be started.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let level = if self.quiet { "warn" } else { "info" };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(|| messages::Messages)
            .with_ansi(messages::coloured())
            .with_target(false)
            .without_time()
            .init();
        interrupt::expect_limits()?;
        environment::check()?;
        let choice = match self.threads {
            Some(count) => threads::set(count.get())?,
            None => threads::start()?,
        };
        if let Some(note) = choice.note() {
            tracing::warn!("{note}");
        }
        Ok(())
    }
}
