//! `flashcliff tune`: finds the fastest algorithms for calls of certain shapes on a GPU, and stores them for all programs
//! of this library.
//!
//! * `workload` - operators, shapes and types on the command line.
//! * `run` - the search, its log and its tables.

#[cfg(feature = "cuda")]
mod run;
mod workload;

use std::path::PathBuf;

use cayley::Signature;
use clap::Args;
use flashcliff_candle::output_file::OutputFile;

use crate::device::DeviceName;
use crate::error::Error;
use crate::output::Overwrite;

use workload::{Job, OperatorName, PrecisionName};

pub(crate) use workload::{Shape, TypeName};

/// Find the fastest algorithms for calls of certain shapes on a GPU, and store them for all programs of this library.
#[derive(Debug, Args)]
#[command(after_help = "\
Each candidate is timed by events of the GPU within the pass that it belongs to, with cold caches, in turns with what is in use. One that is
faster must compute both passes of the operator right, by a comparison with f64, and the same bit for bit in every run; then it is timed again.

What was found is stored in $FLASHCLIFF_CACHE_DIR/tuning, or else in flashcliff/tuning in the cache folder of the system, in a file for each GPU;
devices read it when they are opened. Results depend on it, by rounding. FLASHCLIFF_TUNING=builtin leaves it out, FLASHCLIFF_TUNING=none also
the table that is built in. `flashcliff info` says what is in use. Ctrl-C keeps what was found until then.

mv_linear_sgp_norm multiplies as mv_linear does: what is found for that serves both.")]
pub(crate) struct TuneArgs {
    /// Operators to tune: mv_linear, fcgp_norm or all; may be repeated.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "clear",
        requires = "shape"
    )]
    operator: Vec<OperatorName>,

    /// Algebra, such as cl300 or 3,0,0; `flashcliff info` lists those with kernels.
    #[arg(long, value_name = "SIGNATURE", default_value = "cl300")]
    algebra: Signature,

    /// Batch and channels, such as 4096x512, or 4096x256x512 with other channels of the output; may be repeated.
    #[arg(long, value_name = "BxINxOUT", required_unless_present = "clear")]
    shape: Vec<Shape>,

    /// The type of all tensors.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: TypeName,

    /// How matrix products of f32 round their operands.
    #[arg(long, value_name = "PRECISION", default_value = "highest")]
    precision: PrecisionName,

    /// The GPU: cuda (the first one) or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cuda(0))]
    device: DeviceName,

    /// The largest number of algorithms to try for a matrix product.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    candidates: u16,

    /// Write a line of JSON for every candidate to a file, whole or not at all.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// Store no choices.
    #[arg(long)]
    dry_run: bool,

    /// First forget the choices that are stored for the GPU; without an operator, stop there.
    #[arg(long, conflicts_with = "dry_run")]
    clear: bool,
}

/// Runs the command.
///
/// # Errors
/// A device that is not a GPU, or that does not exist; operators and shapes that do not fit; a file that cannot be
/// written.
pub(crate) fn run(args: &TuneArgs, quiet: bool) -> Result<(), Error> {
    let DeviceName::Cuda(ordinal) = args.device else {
        return Err(Error::OutOfRange {
            option: "--device",
            expected: "cuda or cuda:N".to_owned(),
            got: args.device.to_string(),
        });
    };
    let jobs = workload::jobs(&args.operator, args.algebra, &args.shape)?;
    let open = || {
        let log = args.log.as_deref();
        log.map(|path| args.overwrite.create(path)).transpose()
    };
    on_gpu(args, ordinal, &jobs, open, quiet)
}

#[cfg(feature = "cuda")]
fn on_gpu(
    args: &TuneArgs,
    ordinal: usize,
    jobs: &[Job],
    log: impl FnOnce() -> Result<Option<OutputFile>, Error>,
    quiet: bool,
) -> Result<(), Error> {
    let device = flashcliff::Device::cuda(ordinal)?;
    run::run(args, &device, jobs, log()?, quiet)
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(
    args: &TuneArgs,
    ordinal: usize,
    jobs: &[Job],
    _log: impl FnOnce() -> Result<Option<OutputFile>, Error>,
    _quiet: bool,
) -> Result<(), Error> {
    for job in jobs {
        let name = job.operator.name();
        tracing::debug!("{name} at {:?} on cuda:{ordinal} by {args:?}", job.dims);
    }
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}
