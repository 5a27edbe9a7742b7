//! `flashcliff train`: a published task from data to a comparison with the published errors.
//!
//! * `settings` - what decides a run, bit for bit.
//! * `folder` - where the results go.
//! * `batches` - which samples a step sees.
//! * `evaluate` - samples as tensors, and errors.
//! * `session` - model, optimiser and history: one step, saving, resuming.
//! * `progress` - bars.
//! * `curve`, `metrics`, `report` - the results.
//!
//! Results do not depend on the number of threads, on interruptions, or on anything but the settings and the SIMD tier, or the kind of GPU.

mod batches;
mod curve;
mod evaluate;
mod folder;
mod metrics;
mod progress;
mod report;
mod session;
mod settings;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tracing::info;

use crate::device::DeviceArgs;
use crate::error::Error;
use crate::files::folder_of;
use crate::interrupt;
use crate::output::print;
use crate::tasks::{Dataset, Task};

use folder::Folder;
use metrics::{Errors, Metrics, Seconds};
use progress::Bars;
use session::{Session, State};
use settings::Settings;

/// Train a network on a published task and compare its error with the published ones.
#[derive(Debug, Args)]
#[command(after_help = "\
The output folder gets metrics.json (settings, errors, losses, times), curve.svg, best.safetensors (the weights with the least validation error,
named as in CGENN's state dict) and state.safetensors, from which --resume continues. A folder that holds results is refused without --overwrite.
Ctrl-C saves the state and ends the program with status 0; a second Ctrl-C ends it at once.
Adam without weight decay or schedule; batches from shuffled epochs without their incomplete last batch, or the whole set if it is no larger than a batch.
Defaults (samples, steps, batch): hulls 1024, 1024, 128; regression 300, 1000, 15; volumes 16384, 4096, 128.")]
pub(crate) struct TrainArgs {
    /// What to learn.
    task: TaskName,

    /// Training samples.
    #[arg(long, value_name = "N")]
    samples: Option<usize>,

    /// Optimiser steps.
    #[arg(long, value_name = "N")]
    steps: Option<NonZero<usize>>,

    /// Samples of a step.
    #[arg(long, value_name = "N")]
    batch: Option<NonZero<usize>>,

    /// Seed of data, weights and batches [default: 0].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Learning rate [default: 0.001].
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    lr: Option<f64>,

    /// Validation samples [default: 2048].
    #[arg(long, value_name = "N")]
    val_samples: Option<NonZero<usize>>,

    /// Test samples [default: 4096].
    #[arg(long, value_name = "N")]
    test_samples: Option<NonZero<usize>>,

    /// Folder for the results [default: runs/TASK-SAMPLES-sSEED, or that of the resumed state].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Continue from a state.safetensors, bit for bit as if never interrupted (on the device that made it).
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,

    /// Replace results that are in the output folder.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    device: DeviceArgs,
}

/// A task on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TaskName {
    /// Volume of the convex hull of 16 points in R^5 (CGENN).
    Hulls,
    /// An O(5)-invariant function of two vectors (EMLP, CGENN).
    Regression,
    /// Signed volume of three vectors in R^3 (CGENN).
    Volumes,
}

impl TaskName {
    fn task(self) -> Task {
        match self {
            Self::Hulls => Task::Hulls,
            Self::Regression => Task::Regression,
            Self::Volumes => Task::Volumes,
        }
    }
}

/// How often a long run saves its state on the way.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

/// Runs the command.
///
/// # Errors
/// Settings out of range, an output folder that cannot be written or holds results, a state that does not fit, a loss that is not finite.
pub(crate) fn run(args: &TrainArgs, quiet: bool) -> Result<(), Error> {
    let (settings, state) = match &args.resume {
        None => (Settings::new(args)?, None),
        Some(file) => {
            let state = State::load(file)?;
            state.settings.check_against(args)?;
            (state.settings.clone(), Some(state))
        }
    };
    let device = args.device.open()?;
    let folder = match (&args.out, &args.resume) {
        (Some(out), _) => out.clone(),
        (None, Some(file)) => folder_of(file).to_owned(),
        (None, None) => Path::new("runs").join(settings.run_name()),
    };
    // The folder that the resumed state lies in may hold what that run has written.
    let own = args
        .resume
        .as_ref()
        .is_some_and(|file| folder_of(file) == folder);
    let folder = Folder::prepare(folder, args.overwrite || own)?;
    interrupt::catch()?;

    let bars = Bars::new(quiet);
    let start = Instant::now();
    let data = bars.generate(settings.task(), settings.sizes(), settings.seed)?;
    let data_seconds = start.elapsed().as_secs_f64();
    let mut session = match state {
        None => Session::new(settings, &data, device)?,
        Some(state) => Session::resume(state, &data, device)?,
    };
    info!(
        "{} parameters; {} training samples in {data_seconds:.1} s; results go to {}",
        session.parameter_count(),
        data.train.len,
        folder.path().display()
    );
    if !train(&mut session, &folder, &bars)? {
        session.save(&folder.state())?;
        let (step, steps) = (session.history().step, session.settings().steps);
        return print(&format!(
            "interrupted after {step} of {steps} steps; continue with\n  flashcliff train {} --resume {}\n",
            session.settings().task().name(),
            folder.state().display()
        ));
    }
    session.save(&folder.state())?;
    finish(session, &data, &folder, args.device, data_seconds)
}

/// Trains to the last step. `false` if Ctrl-C came first.
fn train(session: &mut Session<'_>, folder: &Folder, bars: &Bars) -> Result<bool, Error> {
    let settings = session.settings().clone();
    let mut bar = bars.training(session);
    // A resumed run may write to a new folder.
    session.save_best(&folder.best())?;
    let mut saved = Instant::now();
    while session.history().step < settings.steps {
        if interrupt::requested() {
            bar.finish();
            return Ok(false);
        }
        let loss = session.step()?;
        bar.step(loss);
        let step = session.history().step;
        if step.is_multiple_of(settings.val_every) || step == settings.steps {
            if session.validate()? {
                session.save_best(&folder.best())?;
            }
            bar.validated(session.history());
            if saved.elapsed() > SAVE_INTERVAL {
                session.save(&folder.state())?;
                saved = Instant::now();
            }
        }
    }
    bar.finish();
    Ok(true)
}

/// Measures the error on the test set, writes and prints the results.
fn finish(
    session: Session<'_>,
    data: &Dataset,
    folder: &Folder,
    device: DeviceArgs,
    data_seconds: f64,
) -> Result<(), Error> {
    let start = Instant::now();
    let errors = Errors::measure(&session)?;
    let seconds = Seconds {
        data: data_seconds,
        training: session.history().seconds,
        test: start.elapsed().as_secs_f64(),
    };
    let metrics = Metrics::new(&session, data, device.name(), errors, seconds);
    folder.write_curve(&curve::draw(session.history(), &metrics)?)?;
    folder.write_metrics(&metrics)?;
    print(&report::render(&metrics, folder))
}
