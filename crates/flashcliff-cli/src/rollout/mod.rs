//! `flashcliff rollout`: applies a trained network of bodies again and again, beside the true simulation, and measures its equivariance.
//!
//! * `flow` - the network as a function of bodies, and the rule for velocities.
//! * `walk` - the network, the simulation and simple motions from the same starts.
//! * `equivariance` - how far the network is from commuting with rotations, reflections and translations.
//! * `picture` - the trajectories as an SVG.

mod equivariance;
mod flow;
mod picture;
mod walk;

use std::path::PathBuf;

use candle_core::{DType, Device};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use flashcliff_tasks::{Motion, Sizes};
use serde::Serialize;

use crate::device::DeviceArgs;
use crate::error::Error;
use crate::output::{self, Align, Overwrite, Table, print};
use crate::shell;
use crate::train::{Program, TaskName, Trained, number};

use equivariance::{Deviation, Moved};
use flow::{Bodies, Flow};
use walk::{Errors, Walk};

/// The trajectories that are drawn.
const DRAWN: usize = 4;

/// A task whose samples are bodies that move.
#[derive(Clone, Copy, Debug)]
struct Moving(TaskName);

impl ValueEnum for Moving {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(TaskName::Gravity),
            Self(TaskName::Nbody),
            Self(TaskName::Nbody5d),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        self.0.to_possible_value()
    }
}

/// Apply a trained network of bodies again and again, beside the true simulation, and measure its equivariance.
#[derive(Debug, Args)]
#[command(after_help = "\
WEIGHTS is such a file as `eval` accepts. Starts are the first test samples of the run. From them the network and the simulation of the data, in f64, move the
bodies step by step; a step is the time from inputs to targets: a unit of nbody and nbody5d, a tenth of one of gravity.

The network predicts positions alone. For its next step the velocity of a body is the way of the last step over its time, so it lags by half a step. The
network was trained neither for such velocities nor for its own predictions: this shows how far it carries, not how well it learnt its task.

The table has squared errors of positions, of each sample in the mean over coordinates and bodies, and their mean and median over samples: of the
network (model); of the simulation that gets its velocities by that rule after each step, as a perfect network would (rule); of bodies that keep
their velocities (straight), and that stay (still). Bodies that meet make much of little differences, so one sample can have most of a mean. The truth
starts from the stored positions, which are rounded: but for such samples the first mean is the error of `eval`.

The error of equivariance is |f(g x) - g f(x)| over |f(x) - x|, the size of the motion, of one step f and a random g for each sample: of all samples
together (rms), and the largest of one sample. Translations are as long as the samples are wide. In f64, on the CPU, it is rounding; what is
larger is not equivariant. The network of gravity does not commute with reflections, since the weight of an embedded point is 1 and that of a
reflected one -1.

The picture has up to four samples, each in the plane of the two axes along which it is widest: the truth as lines with a point after each step, the
network as rings after each step. Rings that are far from the truth are outside of the picture, and not drawn.")]
pub(crate) struct RolloutArgs {
    /// Task of the weights.
    task: Moving,

    /// File of the weights.
    weights: PathBuf,

    /// File for the picture, an SVG.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// How often the network is applied.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,

    /// Starts: the first samples of the test set, 2000 of nbody and nbody5d at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,

    /// Seed of the random rotations, reflections and translations.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Seed of the data [default: that of the run, or 0; nbody and nbody5d: 43].
    #[arg(long, value_name = "N")]
    data_seed: Option<u64>,

    #[command(flatten)]
    device: DeviceArgs,

    /// Also write the errors to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,
}

/// What is measured.
#[derive(Debug, Serialize)]
struct Report {
    program: Program,
    task: &'static str,
    #[serde(serialize_with = "output::path")]
    weights: PathBuf,
    samples: u32,
    data_seed: u64,
    /// The seed of the motions of space.
    seed: u64,
    /// The time of a step.
    time: f64,
    steps: Vec<Errors>,
    equivariance: Vec<Equivariance>,
}

/// The errors of equivariance under motions of one kind.
#[derive(Debug, Serialize)]
struct Equivariance {
    moved: Moved,
    f32: Deviation,
    f64: Deviation,
}

/// Runs the command.
///
/// # Errors
/// Weights that cannot be read or do not fit the network, files that cannot be written, the errors of the task and the device.
pub(crate) fn run(args: &RolloutArgs) -> Result<(), Error> {
    let task = args.task.0.task();
    match task.motion() {
        Some(motion) if motion.dim == 3 => run_in::<3>(args, motion),
        Some(motion) if motion.dim == 5 => run_in::<5>(args, motion),
        _ => Err(Error::OutOfRange {
            option: "the task",
            expected: "one whose bodies move in 3 or 5 dimensions".to_owned(),
            got: task.to_string(),
        }),
    }
}

/// Runs the command in a space of `D` dimensions.
fn run_in<const D: usize>(args: &RolloutArgs, motion: Motion) -> Result<(), Error> {
    let out = args.overwrite.create(&args.out)?;
    let create = |path| args.overwrite.create(path);
    let json = args.json.as_deref().map(create).transpose()?;
    output::check_apart(("--out", Some(&out)), ("--json", json.as_ref()))?;
    let task = args.task.0.task();
    let trained = Trained::read(args.task.0, &args.weights)?;
    let flow = Flow::new(&trained, DType::F32, args.device.open()?)?;
    let starts: Bodies<D> = starts(args, &trained)?;
    let mut walk = Walk::new(motion, starts.clone(), DRAWN);
    let mut steps = Vec::new();
    for _ in 0..args.steps {
        steps.push(walk.step(&flow)?);
    }
    let report = Report {
        program: Program::new(args.device.name(), None),
        task: task.name(),
        weights: args.weights.clone(),
        samples: args.samples,
        data_seed: trained.data_seed(args.data_seed),
        seed: args.seed,
        time: motion.time,
        steps,
        equivariance: equivariance(args, &trained, motion, &flow, &starts)?,
    };
    out.commit(picture::draw(task, walk.trajectories())?.as_bytes())?;
    if let Some(file) = json {
        file.commit(output::json(&report)?.as_bytes())?;
    }
    print(&report.text(args))
}

/// The bodies of the first test samples.
fn starts<const D: usize>(args: &RolloutArgs, trained: &Trained) -> Result<Bodies<D>, Error> {
    // Test samples do not depend on the others.
    let sizes = Sizes {
        train: 1,
        val: 0,
        test: args.samples as usize,
    };
    let seed = trained.data_seed(args.data_seed);
    let data = args.task.0.task().generate(sizes, seed)?;
    let numbers = data.test.inputs.iter();
    Ok(Bodies(numbers.map(|&x| f64::from(x)).collect()))
}

fn equivariance<const D: usize>(
    args: &RolloutArgs,
    trained: &Trained,
    motion: Motion,
    narrow: &Flow,
    starts: &Bodies<D>,
) -> Result<Vec<Equivariance>, Error> {
    let wide = Flow::new(trained, DType::F64, Device::Cpu)?;
    let deviation = |flow, moved| equivariance::measure(flow, moved, args.seed, motion, starts);
    let measured = Moved::ALL.into_iter().map(|moved| {
        Ok(Equivariance {
            moved,
            f32: deviation(narrow, moved)?,
            f64: deviation(&wide, moved)?,
        })
    });
    measured.collect()
}

impl Report {
    fn text(&self, args: &RolloutArgs) -> String {
        let columns = ["step", "time", "mean: model", "rule", "straight", "still"];
        let medians = ["median: model", "rule", "straight", "still"];
        let columns = columns.iter().chain(&medians);
        let columns: Vec<_> = columns.map(|&name| (name, Align::Right)).collect();
        let mut errors = Table::new(&columns);
        for row in &self.steps {
            let own = [row.model, row.rule, row.straight, row.still];
            let cells = own.map(|error| error.mean).into_iter();
            let cells = cells.chain(own.map(|error| error.median)).map(number);
            let place = [row.step.to_string(), format!("{:.1}", row.time)];
            errors.row(place.into_iter().chain(cells));
        }
        let columns = ["f32, rms", "f32, largest", "f64, rms", "f64, largest"];
        let columns = columns.map(|name| (name, Align::Right));
        let columns = [("moved by", Align::Left)].into_iter().chain(columns);
        let mut deviations = Table::new(&columns.collect::<Vec<_>>());
        for row in &self.equivariance {
            let cells = [row.f32.rms, row.f32.largest, row.f64.rms, row.f64.largest];
            let cells = cells.map(|error| format!("{error:.1e}"));
            deviations.row([row.moved.to_string()].into_iter().chain(cells));
        }
        format!(
            "{}: {}, {} test samples, data of seed {}; squared error of positions\n\n{}\n\
             error of equivariance of a step, over the size of the motion\n\n{}\npicture: {}\n",
            self.task,
            shell::word(&self.weights),
            self.samples,
            self.data_seed,
            errors.render(),
            deviations.render(),
            shell::word(&args.out),
        )
    }
}
