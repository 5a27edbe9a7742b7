//! `flashcliff data`: the samples of a task, or jets, in a file, for other programs.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use flashcliff_tasks::{Sizes, jets};

use crate::cli::from_one;
use crate::error::Error;
use crate::op::store::Results;
use crate::output::Overwrite;
use crate::train::{TaskName, default_data_seed, default_sizes};

/// What there are samples of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Samples {
    Task(TaskName),
    Jets,
}

impl ValueEnum for Samples {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Task(TaskName::Hulls),
            Self::Task(TaskName::Regression),
            Self::Task(TaskName::Volumes),
            Self::Task(TaskName::Gravity),
            Self::Task(TaskName::Nbody),
            Self::Task(TaskName::Nbody5d),
            Self::Task(TaskName::CsmpnHulls),
            Self::Task(TaskName::Forces),
            Self::Jets,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Task(task) => task.to_possible_value(),
            Self::Jets => Some(
                PossibleValue::new("jets")
                    .help("Jets of particles of two known distributions, to be told apart"),
            ),
        }
    }
}

/// Jets that are written unless other numbers are asked for.
const JETS: Sizes = Sizes {
    train: 32_768,
    val: 4_096,
    test: 8_192,
};

/// Write the samples of a task, or jets, to a safetensors file.
#[derive(Debug, Args)]
#[command(after_help = "\
The data are those of `flashcliff train` with the same sizes and seed, in f32: train.inputs [samples, points, numbers of a point],
train.targets [samples, targets], and the same for val and test. Stored targets are normalised; recover the original units with
target * target_scale + target_shift, where both are tensors of shape [1].

What a point and a target are:
  hulls, regression, volumes  a vector; one number
  gravity, nbody, nbody5d     a body: mass or charge, position, velocity; the positions afterwards, body after body
  csmpn-hulls                 a vertex, edge or triangle of 8 points: position, whether it is in the complex of the hull, 1 divided by
                              the number of its messages and by that of simplices, 1 at its dimension; one number
  forces                      16 atoms of silicon, each its place and 1, and 27 translations by -1, 0 or 1 lattice vectors, each with
                              a 0; for each atom its force, in eV/Angstrom, and 5 times the mean energy of an atom, in eV above
                              the crystal at rest

Jets have particles [jets, 80, 4] (energy and momentum, zeros after the last one), counts [jets], labels [jets] (1 of signal) and
log_ratios [jets], what the best possible classifier would answer if it knew the frame of a jet.")]
pub(crate) struct DataArgs {
    /// What to write.
    samples_of: Samples,

    /// File to write. One that exists is refused without --overwrite.
    output: PathBuf,

    #[command(flatten)]
    overwrite: Overwrite,

    /// Training samples [default: that of `train`; 32768 jets].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    samples: Option<NonZero<usize>>,

    /// Validation samples [default: that of `train`; 4096 jets].
    #[arg(long, value_name = "N")]
    val_samples: Option<usize>,

    /// Test samples [default: that of `train`; 8192 jets].
    #[arg(long, value_name = "N")]
    test_samples: Option<usize>,

    /// Seed of the samples [default: 0; nbody and nbody5d: 43].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be written; sizes without memory for their samples.
pub(crate) fn run(args: &DataArgs) -> Result<(), Error> {
    let output = args.overwrite.create(&args.output)?;
    let usual = match args.samples_of {
        Samples::Task(task) => default_sizes(task),
        Samples::Jets => JETS,
    };
    let sizes = Sizes {
        train: args.samples.map_or(usual.train, NonZero::get),
        val: args.val_samples.unwrap_or(usual.val),
        test: args.test_samples.unwrap_or(usual.test),
    };
    let mut tensors = Results::default();
    match args.samples_of {
        Samples::Task(task) => {
            let seed = args.seed.unwrap_or(default_data_seed(task));
            write_task(task, sizes, seed, &mut tensors)?;
        }
        Samples::Jets => write_jets(sizes, args.seed.unwrap_or(0), &mut tensors)?,
    }
    Ok(output.commit(&tensors.serialize()?)?)
}

fn write_task(task: TaskName, sizes: Sizes, seed: u64, tensors: &mut Results) -> Result<(), Error> {
    let data = task.task().generate(sizes, seed)?;
    for (name, split) in [
        ("train", &data.train),
        ("val", &data.val),
        ("test", &data.test),
    ] {
        let targets = [split.len(), split.target_len];
        tensors.insert(format!("{name}.inputs"), &split.shape, &split.inputs);
        tensors.insert(format!("{name}.targets"), &targets, &split.targets);
    }
    tensors.insert("target_scale", &[1], &[data.target_scale]);
    tensors.insert("target_shift", &[1], &[data.target_shift]);
    Ok(())
}

fn write_jets(sizes: Sizes, seed: u64, tensors: &mut Results) -> Result<(), Error> {
    let data = jets::generate(sizes, seed, &|_| ControlFlow::Continue(()))?;
    for (name, split) in [
        ("train", &data.train),
        ("val", &data.val),
        ("test", &data.test),
    ] {
        let jets = [split.len()];
        let particles = [split.len(), jets::MAX_PARTICLES, 4];
        let counts: Vec<f32> = split.counts.iter().map(|&count| count as f32).collect();
        tensors.insert(format!("{name}.particles"), &particles, &split.particles);
        tensors.insert(format!("{name}.counts"), &jets, &counts);
        tensors.insert(format!("{name}.labels"), &jets, &split.labels);
        tensors.insert(format!("{name}.log_ratios"), &jets, &split.log_ratios);
    }
    Ok(())
}
