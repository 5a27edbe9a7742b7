//! `flashcliff data`: the samples of a task in a file, for other programs.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use flashcliff_candle::output_file::OutputFile;
use flashcliff_tasks::Sizes;

use crate::error::Error;
use crate::op::store::Results;
use crate::train::{TaskName, default_sizes};

/// Write the samples of a task to a safetensors file.
#[derive(Debug, Args)]
#[command(after_help = "\
The file has inputs [samples, points, numbers of a point] and targets [samples, targets] of train, val and test in f32: train.inputs and so on. They are
those of `flashcliff train` with the same sizes and seed. target_scale and target_shift, [1] each, make targets in their own units of stored ones:
target * target_scale + target_shift.

Points of gravity are bodies: mass, position, velocity; the targets are their positions afterwards, body after body.")]
pub(crate) struct DataArgs {
    /// Task whose samples to write.
    task: TaskName,

    /// File to write.
    output: PathBuf,

    /// Training samples [default: that of `train`].
    #[arg(long, value_name = "N")]
    samples: Option<NonZero<usize>>,

    /// Validation samples [default: that of `train`].
    #[arg(long, value_name = "N")]
    val_samples: Option<usize>,

    /// Test samples [default: that of `train`].
    #[arg(long, value_name = "N")]
    test_samples: Option<usize>,

    /// Seed of the samples.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be written; sizes without memory for their samples.
pub(crate) fn run(args: &DataArgs) -> Result<(), Error> {
    let output = OutputFile::create(&args.output)?;
    let usual = default_sizes(args.task);
    let sizes = Sizes {
        train: args.samples.map_or(usual.train, NonZero::get),
        val: args.val_samples.unwrap_or(usual.val),
        test: args.test_samples.unwrap_or(usual.test),
    };
    let data = args.task.task().generate(sizes, args.seed)?;
    let mut tensors = Results::default();
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
    Ok(output.commit(&tensors.serialize()?)?)
}
