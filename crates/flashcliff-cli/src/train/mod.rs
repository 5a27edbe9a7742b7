//! `flashcliff train`: a published task from data to a comparison with the published errors.
//!
//! * `settings` - the settings that determine a run, bit for bit.
//! * `optimiser` - the settings of the optimiser; `model` - the network.
//! * `folder`, `lock` - the folder for the results, for one run at a time.
//! * `batches` - the samples that each step sees.
//! * `capture`, `precision` - how steps run: as CUDA graphs, with how much memory, and how they round.
//! * `start`, `drawing` - what comes before the steps: devices, ranks, data on a separate thread.
//! * `evaluate` - samples as tensors, and errors.
//! * `forces` - errors of energies and forces, each in its unit.
//! * `trainer` - model, optimiser and objective; `rehearsal` - steps of them on made-up data, for other commands.
//! * `session` - model, optimiser and history: steps, saving, resuming.
//! * `ranks`, `supervisor`, `team`, `follow` - runs on several GPUs, one process each.
//! * `saver` - when a run is saved, and what happens when that fails.
//! * `progress` - bars; `ramps` - the learning rate of charged bodies.
//! * `curve`, `metrics`, `report` - the results.
//! * `trained` - weights in files, for other commands.
//!
//! Results depend on the settings and the SIMD tier, or the kind of GPU. They do not depend on the number of threads or on interruptions.

mod batches;
mod capture;
mod curve;
mod drawing;
mod evaluate;
mod folder;
mod follow;
mod forces;
mod lock;
mod metrics;
mod model;
mod optimiser;
mod precision;
mod progress;
mod ramps;
mod ranks;
mod rehearsal;
mod report;
mod saver;
mod session;
mod settings;
mod start;
mod supervisor;
mod team;
mod trained;
mod trainer;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use candle_core::Device;
use clap::{Args, ValueEnum};
use flashcliff_candle::distributed::{Communicator, World};
use flashcliff_candle::output_file::folder_of;
use flashcliff_tasks::{Dataset, Sizes, SplitName, Task};
use tracing::info;

use crate::cli::from_one;
use crate::device::{DeviceArgs, DeviceName};
use crate::error::{Error, report as causes};
use crate::interrupt;
use crate::messages::say;
use crate::output::print;
use crate::shell;

use capture::StepArgs;
use drawing::Drawing;
use folder::Folder;
use metrics::{Errors, Metrics, Seconds};
use model::ModelName;
use optimiser::OptimiserArgs;
use progress::Bars;
use ranks::Role;
use saver::Saver;
use session::{Place, Session, State};
use settings::Settings;
use start::{Part, Start};
use team::Team;
use trainer::Trainer;

pub(crate) use evaluate::predictions;
pub(crate) use forces::{ForceErrors, table_of_forces};
pub(crate) use metrics::Program;
pub(crate) use precision::PrecisionName;
pub(crate) use rehearsal::{Play, Rehearsal};
pub(crate) use report::number;
pub(crate) use trained::{SamplesArgs, Trained, error_on};

/// Train a network on a published task and compare its error with the published ones.
#[derive(Debug, Args)]
#[command(after_help = "\
Output folder:
  metrics.json       settings, errors, losses, times
  curve.svg          the learning curve
  best.safetensors   the weights with the least validation error, by the names of CGENN, GATr or nn.Potential, and the network,
                     which PyTorch and JAX (load_network), Rust and C run. Gravity: its transformer, from bodies as multivectors
                     to points. Forces: the energy, whose gradient the forces are
  state.safetensors  what --resume continues from
Both files of weights say the settings of the run, and the algebra and the norm of each layer; --resume, `eval` and `rollout` refuse
others. A folder that holds results is refused without --overwrite, and one run at a time writes to a folder. Existing files keep their
links, permissions and owners; read-only files are not overwritten.

Defaults of a task:
  task         samples   steps  batch  others
  hulls           1024    1024    128  --model affine: --lr 0.01, ramps
  regression       300    1000     15  --model invariants: ramps
  volumes        16384    4096    128
  gravity         1000    5001     64  --lr 0.0003 --clip-norm 10, steps down, a regulariser (GATr)
  nbody           3000  131072    100  --lr 0.004 --weight-decay 0.0001, ramps (CGENN)
  nbody5d         3000    4096    128  as nbody; GLGENN says neither optimiser nor learning rate
  csmpn-hulls    16384  131072     16  ramps (CSMPN)
  forces           512    2000      8  --lr 0.01 --clip-norm 10, ramps (our choice)
Without --schedule, ramps: the rate grows over a 64th of the run and falls over the last quarter; steps down: after each fifth of the run
the rate is 0.398 times what it was. The regulariser of gravity has the weight 0.01 and is no part of the losses that are shown. The
error of forces is of forces, in eV/Angstrom, and of five times the energy of an atom; a table has both in their units.
Other budgets of GLGENN for nbody5d: --samples 30 --steps 2048, and --samples 300, each with as many validation and test samples.

Data: batches come from shuffled epochs without their incomplete last batch, or are the whole set if it is no larger than a batch. Those
of nbody and nbody5d are EGNN's, of seed 43 for any --seed, unless --data-seed says another.

Stopping: Ctrl-C saves the state and ends the program with status 0; a second Ctrl-C ends it at once. While a new run makes its data there
is nothing to save, and the status is 1. A state that cannot be saved on the way, as on a full disk, is tried again later. The status is
also 1 if the last state cannot be saved, or if the loss becomes NaN or infinite, after the state is saved.

Several GPUs: --gpus N starts a process for each. torchrun starts them too, on one host or several: torchrun --nproc-per-node N
--no-python flashcliff train ...; so does anything that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. --batch is the whole
batch, a multiple of the number of GPUs. Results are those of one GPU up to the order in which numbers are added; with --dropout each GPU
drops other grades. If a process ends, all end with status 1; the state is saved.")]
pub(crate) struct TrainArgs {
    /// Task to learn.
    task: TaskName,

    /// Network [default: published].
    #[arg(long, value_name = "NAME")]
    model: Option<ModelName>,

    /// Training samples [default: see below].
    #[arg(long, value_name = "N")]
    samples: Option<usize>,

    /// Optimiser steps [default: see below].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    steps: Option<NonZero<usize>>,

    /// Samples of a step [default: see below].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    batch: Option<NonZero<usize>>,

    /// Seed of data, weights and batches [default: 0].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Seed of the data alone, so that runs of several seeds can have the same data [default: that
    /// of --seed; nbody and nbody5d: 43].
    #[arg(long, value_name = "N")]
    data_seed: Option<u64>,

    /// Learning rate [default: 0.001; gravity: 0.0003; nbody and nbody5d: 0.004; forces and the
    /// model affine: 0.01].
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    lr: Option<f64>,

    #[command(flatten)]
    optimiser: OptimiserArgs,

    /// Probability of dropout of grades in the blocks of gravity's network, in training [default: 0].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    dropout: Option<f64>,

    /// Validation samples [default: 2048; gravity: 5000; nbody and nbody5d: 2000; csmpn-hulls:
    /// 16384; forces: 256].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    val_samples: Option<NonZero<usize>>,

    /// Test samples [default: 4096; gravity: 5000; nbody and nbody5d: 2000; csmpn-hulls: 16384;
    /// forces: 256].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    test_samples: Option<NonZero<usize>>,

    /// Folder for the results
    /// [default: runs/TASK-SAMPLES-sSEED, with --model -NAME after the task, with --data-seed -dSEED at the end, or the folder of the resumed state].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Continue from a state.safetensors, bit for bit as if never interrupted (on the device that made it).
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,

    /// Save the state every N steps, and every 30 s [default: 32 times a run, unless that took more than 2 % of its time].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    save_every: Option<NonZero<usize>>,

    #[command(flatten)]
    steps_run: StepArgs,

    /// Rounding of training steps on a GPU [default: highest].
    #[arg(long, value_name = "PRECISION")]
    precision: Option<PrecisionName>,

    /// Replace results that are in the output folder.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    device: DeviceArgs,

    /// GPUs of this machine that share each batch, one process each [default: 1]. Needs --device cuda, and NCCL.
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    gpus: Option<NonZero<usize>>,
}

/// A task on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TaskName {
    /// Volume of the convex hull of 16 points in R^5 (CGENN).
    Hulls,
    /// An O(5)-invariant function of two vectors (EMLP, CGENN).
    Regression,
    /// Signed volume of three vectors in R^3 (CGENN).
    Volumes,
    /// Positions of four bodies that attract each other, after a tenth of a unit of time (GATr).
    Gravity,
    /// Positions of five charged bodies after a unit of time (EGNN, CGENN).
    Nbody,
    /// Positions of five charged bodies in R^5 after a unit of time (GLGENN).
    Nbody5d,
    /// Volume of the convex hull of 8 points in R^5, on its vertices, edges and triangles (CSMPN).
    CsmpnHulls,
    /// Energies and forces of crystals of silicon, by Stillinger and Weber's potential.
    Forces,
}

impl TaskName {
    /// The task of this name.
    pub(crate) fn task(self) -> Task {
        match self {
            Self::Hulls => Task::Hulls,
            Self::Regression => Task::Regression,
            Self::Volumes => Task::Volumes,
            Self::Gravity => Task::Gravity,
            Self::Nbody => Task::Bodies,
            Self::Nbody5d => Task::Bodies5d,
            Self::CsmpnHulls => Task::Complexes,
            Self::Forces => Task::Forces,
        }
    }
}

/// The seed of the data of a task unless another is asked for.
pub(crate) fn default_data_seed(task: TaskName) -> u64 {
    settings::default_data_seed(task.task())
}

/// The samples that a task has unless others are asked for.
pub(crate) fn default_sizes(task: TaskName) -> Sizes {
    settings::default_sizes(task.task())
}

/// Runs the command.
///
/// # Errors
/// Settings out of range, an output folder that cannot be written, holds results or is in use, a state that does not
/// fit, an error that is not finite, a last state that cannot be saved.
pub(crate) fn run(args: &TrainArgs, quiet: bool) -> Result<(), Error> {
    let role = Role::of(args)?;
    match &role {
        Role::Supervisor(size) => {
            read_for(args, &role)?;
            ranks::check_machine(*size)?;
            Communicator::check()?;
            supervisor::run(*size)
        }
        Role::Rank(world) if world.rank > 0 => follow::run(args, world),
        Role::Rank(_) | Role::Alone => lead(args, quiet, &role),
    }
}

/// Runs the process that decides and writes: the only one, or rank 0.
fn lead(args: &TrainArgs, quiet: bool, role: &Role) -> Result<(), Error> {
    interrupt::catch()?;
    let (settings, state) = read_for(args, role)?;
    let name = match role {
        Role::Rank(world) => ranks::device(world),
        _ => args.device,
    };
    let bars = Bars::new(quiet);
    let mut start = Start::begin(name.name());
    let drawing = Drawing::begin(bars, &settings);
    let device = start.open(name)?;
    let path = match (&args.out, &args.resume) {
        (Some(out), _) => out.clone(),
        (None, Some(file)) => folder_of(file).to_owned(),
        (None, None) => Path::new("runs").join(settings.run_name()),
    };
    // The folder of the state that is resumed may hold what that run has written.
    let own = args
        .resume
        .as_ref()
        .is_some_and(|file| is_one_folder(folder_of(file), &path));
    let mut make = |settings: &Settings| {
        settings.precision.set();
        start.part(Part::Model, || {
            let checkpointing = args.steps_run.gradient_checkpointing;
            Trainer::new(settings, (0, role.size()), &device, checkpointing)
        })
    };
    // A batch that does not fit is refused before a folder is made.
    let trainer = match own {
        true => None,
        false => Some(make(&settings)?),
    };
    let folder = Folder::prepare(path, args.overwrite || own)?;
    // Another run may have continued from the state before the folder was locked.
    let (settings, state) = match own {
        true => read_for(args, role)?,
        false => (settings, state),
    };
    let trainer = match trainer {
        Some(trainer) => trainer,
        None => make(&settings)?,
    };
    let drawing = match drawing.fits(&settings) {
        true => drawing,
        false => Drawing::begin(bars, &settings),
    };
    let mut place = Place {
        device,
        trainer,
        team: None,
        steps: args.steps_run,
    };
    let run = (settings, state);
    let Role::Rank(world) = role else {
        return work(args, bars, run, (drawing, place, start), &folder);
    };
    ranks::watch_supervisor();
    let team = start.part(Part::Ranks, || meet(args, world, &place.device))?;
    let team = Rc::new(team);
    place.team = Some(team.clone());
    let done = work(args, bars, run, (drawing, place, start), &folder);
    if let Err(error) = &done {
        team.fail(error);
    }
    done
}

/// Whether two paths name one folder.
fn is_one_folder(one: &Path, other: &Path) -> bool {
    let [first, second] = [one, other].map(|path| path.canonicalize().ok());
    one == other || first.is_some() && first == second
}

/// Meets the other ranks.
fn meet(args: &TrainArgs, world: &World, device: &Device) -> Result<Team, Error> {
    Team::join(world, &agreement(args)?, device)
}

/// What all ranks of a run must have in common, by their command lines. Only rank 0 reads the state that a run continues from.
fn agreement(args: &TrainArgs) -> Result<String, Error> {
    Ok(args.steps_run.agreement()
        + &match &args.resume {
            Some(_) => format!("--resume of {}", args.task.task().name()),
            None => serde_json::to_string_pretty(&Settings::new(args)?)?,
        })
}

/// Waits for the data, trains, and writes the results.
fn work(
    args: &TrainArgs,
    bars: Bars,
    (settings, state): (Settings, Option<State>),
    (drawing, place, mut start): (Drawing, Place, Start),
    folder: &Folder,
) -> Result<(), Error> {
    let drawn = start.part(Part::Data, || drawing.finish());
    // Ranks that are waited for are told of the error.
    if let (Err(Error::Stopped), Some(state), Some(file), None) =
        (&drawn, &state, &args.resume, &place.team)
    {
        return print(&hint("interrupted", state.progress(), file, args));
    }
    let (data, data_seconds) = drawn?;
    let mut session = match state {
        None => Session::new(settings, &data, place, start)?,
        Some(state) => Session::resume(state, &data, place, start)?,
    };
    session.share_start()?;
    info!(
        "{} parameters; {} training samples in {data_seconds:.1} s; results go to {}",
        session.parameter_count(),
        data.train.len(),
        folder.path().display()
    );
    let every = args.save_every.map(usize::from);
    let mut saver = Saver::new(folder, every, session.settings().steps);
    let trained = train(&mut session, &mut saver, &bars, args);
    match trained {
        Ok(true) => {
            let saved = saver.last(&session);
            let finished = finish(&session, &data, folder, args.device, data_seconds);
            // If the state was not saved, the results are all that is left of the run, so they come first.
            saved?;
            match finished? {
                true => Ok(()),
                false => print(&hint(
                    "interrupted",
                    session.progress(),
                    &folder.state(),
                    args,
                )),
            }
        }
        Ok(false) => {
            saver.last(&session)?;
            print(&hint(
                "interrupted",
                session.progress(),
                &folder.state(),
                args,
            ))
        }
        // The error was found before the weights were changed, so the state is worth saving. Any other error may have come in the middle of
        // a step.
        Err(error) if error.is_divergence() => {
            match saver.last(&session) {
                Ok(()) => say(&hint("stopped", session.progress(), &folder.state(), args)),
                Err(unsaved) => say(&causes(&unsaved)),
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// The settings of a run, with its state if it is resumed, checked for what this process is in it.
fn read_for(args: &TrainArgs, role: &Role) -> Result<(Settings, Option<State>), Error> {
    let (settings, state) = read(args)?;
    ranks::check(&settings, role.size())?;
    settings.check_memory(args.steps_run.gradient_checkpointing)?;
    let network = settings.architecture();
    settings.precision.check(args.device.name(), network)?;
    Ok((settings, state))
}

/// The settings of a run, with its state if it is resumed.
fn read(args: &TrainArgs) -> Result<(Settings, Option<State>), Error> {
    let Some(file) = &args.resume else {
        return Ok((Settings::new(args)?, None));
    };
    let state = State::load(file)?;
    state.settings.check_against(args)?;
    Ok((state.settings.clone(), Some(state)))
}

/// A message that says how far a run has come, and how to continue it from a file, in the folder of the run.
fn hint(
    what: &str,
    (step, settings): (usize, &Settings),
    state: &Path,
    args: &TrainArgs,
) -> String {
    let mut options = match args.device.name() {
        DeviceName::Cpu => String::new(),
        gpu => format!(" --device {gpu}"),
    };
    if let Some(gpus) = args.gpus {
        options += &format!(" --gpus {gpus}");
    }
    if args.steps_run.gradient_checkpointing {
        options += " --gradient-checkpointing";
    }
    // A run that stopped before it saved anything is continued from the state of another folder.
    if let Some(out) = args.out.as_deref().filter(|&out| out != folder_of(state)) {
        options += &format!(" --out {}", shell::word(out));
        if args.overwrite {
            options += " --overwrite";
        }
    }
    format!(
        "{what} after {step} of {} steps; continue with\n  flashcliff train {} --resume {}{options}\n",
        settings.steps,
        settings.task().name(),
        shell::word(state)
    )
}

/// Trains to the last step, and ends the work of the other ranks. Returns `false` if Ctrl-C came first.
fn train(
    session: &mut Session<'_>,
    saver: &mut Saver<'_>,
    bars: &Bars,
    args: &TrainArgs,
) -> Result<bool, Error> {
    let trained = steps(session, saver, bars, args);
    let ended = trained.as_ref().err().is_none_or(Error::is_divergence);
    if let (true, Some(team)) = (ended, session.team()) {
        team.finish()?;
    }
    trained
}

/// Trains to the last step. Returns `false` if Ctrl-C came first.
///
/// # Errors
/// [`Error::Diverged`], [`Error::GradientNotFinite`], [`Error::DivergedOn`], [`Error::NotCaptured`].
fn steps(
    session: &mut Session<'_>,
    saver: &mut Saver<'_>,
    bars: &Bars,
    args: &TrainArgs,
) -> Result<bool, Error> {
    let steps = session.settings().steps;
    let mut bar = bars.training(session);
    let mut told = false;
    // A resumed run may write to a new folder.
    saver.best(session)?;
    keep(session, saver, args)?;
    while !interrupt::requested() {
        if session.validation_is_due() {
            let Some(improved) = session.validate()? else {
                break;
            };
            if improved {
                saver.best(session)?;
            }
            bar.validated(session.history());
            session.history().check_validation()?;
        }
        if session.history().step == steps {
            bar.finish();
            return Ok(true);
        }
        let losses = session.advance(saver.until(session))?;
        bar.steps(losses);
        if let (Some(reason), false) = (session.fallback(), told) {
            info!("steps are not captured: {reason}");
            told = true;
        }
        saver.step(session)?;
        keep(session, saver, args)?;
    }
    bar.finish();
    Ok(false)
}

/// Keeps the state for the case that another rank is lost.
fn keep(session: &Session<'_>, saver: &Saver<'_>, args: &TrainArgs) -> Result<(), Error> {
    let (Some(team), folder) = (session.team(), saver.folder()) else {
        return Ok(());
    };
    let hint = hint("saved", session.progress(), &folder.state(), args);
    team.keep(session, saver.saved(), folder.state(), hint)
}

/// Measures the error on the test set, then writes and prints as many results as can be written. Returns `false` if Ctrl-C came first.
fn finish(
    session: &Session<'_>,
    data: &Dataset,
    folder: &Folder,
    device: DeviceArgs,
    data_seconds: f64,
) -> Result<bool, Error> {
    let start = Instant::now();
    let Some(errors) = Errors::measure(session)? else {
        return Ok(false);
    };
    // The weights after the last step, and the best ones.
    let tested = [
        (session.history().step, errors.test),
        (errors.best_step, errors.best_test),
    ];
    let seconds = Seconds {
        data: data_seconds,
        training: session.history().seconds,
        test: start.elapsed().as_secs_f64(),
    };
    let metrics = Metrics::new(session, data, device.name(), errors, seconds)?;
    let drawn = curve::draw(session.history(), &metrics);
    let drawn = drawn.and_then(|svg| folder.write_curve(&svg));
    let written = folder.write_metrics(&metrics);
    print(&report::render(&metrics, folder))?;
    drawn.and(written)?;
    session.history().check_validation()?;
    match tested.into_iter().find(|(_, error)| !error.is_finite()) {
        None => Ok(true),
        Some((step, error)) => Err(Error::DivergedOn {
            split: SplitName::Test,
            step,
            error,
        }),
    }
}
