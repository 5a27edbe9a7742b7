//! The `flashcliff` program: trains the published models, measures what they learnt, writes their data, runs single
//! operators on files, shows algebras, measures, tunes.
//!
//! Exit status: 0 on success, also when Ctrl-C ended a training run that was saved, or tuning; 1 on an error, with
//! its causes on standard error, also when Ctrl-C ended a training run before there was anything to save; 2 on wrong
//! usage; 5 of a rank of a training run on several GPUs that ended because another was lost; 3 and 4 when
//! `bench --baseline` found something slower; 130 when a second Ctrl-C ended the program at once. Results go to
//! standard output, everything else to standard error. Messages are lost where standard error cannot be written; the
//! work goes on.

mod algebra;
mod bench;
mod cli;
mod data;
mod device;
mod dynamics;
mod error;
mod eval;
mod heap;
mod info;
mod interrupt;
mod memory;
mod messages;
mod op;
mod output;
mod profile;
mod rollout;
mod shell;
mod streams;
mod train;
mod tune;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use error::Error;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(status) => status,
        Err(error) => {
            messages::say(&error::report(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, Error> {
    // Benchmarks take the memory of a case anew, from the system too.
    if !matches!(cli.command, Command::Bench(_)) {
        heap::keep_freed();
    }
    cli.start()?;
    let done = match &cli.command {
        Command::Train(args) => train::run(args, cli.quiet),
        Command::Eval(args) => eval::run(args),
        Command::Rollout(args) => rollout::run(args),
        Command::Dynamics(args) => dynamics::run(args),
        Command::Algebra(args) => algebra::run(args),
        Command::Op(args) => op::run(args),
        Command::Data(args) => data::run(args),
        Command::Info(args) => info::run(args),
        Command::Bench(args) => return bench::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Tune(args) => tune::run(args, cli.quiet),
    };
    done.map(|()| ExitCode::SUCCESS)
}
