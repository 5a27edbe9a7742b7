//! `flashcliff bench`: times operators, layers and networks beside what the machine reaches in the same run.
//!
//! Operators with their checks, floors and models are of the crate `flashcliff-bench`, which knows no framework.
//! Layers and networks are made here.
//!
//! * `run` - measures the chosen cases.
//! * `suite` - what is measured, however it is made; the operators.
//! * `networks` - layers, networks and training steps.
//! * `beside` - the same beside a stored run, with verdicts.
//! * `table` - the results as a table.

mod beside;
mod networks;
mod run;
mod suite;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use candle_core::Device;
use cayley::Signature;
use clap::Args;
use clap::builder::PossibleValuesParser;
use flashcliff_bench::Selection;
use flashcliff_bench::cpu::Cpu;
use flashcliff_bench::measure::Effort;
use flashcliff_bench::report::Report;

use crate::device::{DeviceArgs, DeviceName};
use crate::error::Error;
use crate::output::{Overwrite, print};
use crate::tune::{Shape, TypeName};
use networks::{NetworkSelection, layer_names, network_names};

/// Measure operators, layers, networks and training steps, beside what the machine reaches in the same run.
#[derive(Debug, Args)]
#[command(after_help = "\
Operators: every operator of the table runs with the defaults of its options. Before it is timed, both passes are checked against the formula in f64 on
some rows; a wrong result is an error. Work and floors are timed in turns, and medians compared. The floor is a streaming addition by all threads
that moves as many bytes as the operator reads and writes at least, each tensor once.

Roofline: the least time of a case is that of its calls and the longer one of two times: that of the floor, and that of its operations at
the measured rate of multiply-adds. Efficiency is the least time over the measured one. What takes longest names the class: launch-bound,
cache-bound (the floor is faster than a large addition), bandwidth-bound or compute-bound. Each class has an efficiency to aim at.

Layers: they run in the types that they take, in the sizes of --algebra and --shape too: the forward pass and both passes.

Networks: they run in f32: predictions and
training steps, with Adam; on a GPU the steps of hulls, regression and volumes in bf16 and f16 too, as by `train --precision`: there values between
layers are of 16 bits, parameters of f32. Predictions are of f32 always. Before they are timed they are compared with f64 on the CPU: outputs and gradients, predictions, losses,
and parameters after a step. Their bytes and operations are those of the calls that they make, of operators, matrix products and the optimiser; the
floor is an addition for each call. Second derivatives are not measured.

Memory: the most that was held at once, on the heap of the program or in the pool of the GPU, from the making of the case on, beside what must
be held: parameters, the tensors of the largest call; for gradients also theirs and what forward passes keep for backward passes; in a training
step the moments of Adam too. What matrix products on the CPU keep for each thread for the life of the process, a buffer of the size of a cache, is
not part of it. Its target holds for two threads.

GPUs: times are those of the GPU, between events around a CUDA graph of the calls, with other data in its second-level cache. `wall` is the
time by the clock of the host from call to call, `captured` the same where the calls are one CUDA graph. The floor is an addition there too; rates of
operations are those of large products of matrices. Work that cannot be captured has the time of single launches, and says why in the JSON.

Comparing: with --baseline each case is repeated until the spread allows a verdict beside a stored run: unchanged, faster, slower (warning), slower
(failure), or not comparable: another machine, no such case, a stored case of too few or impossible times, a floor that differs too much, too
much noise. A run to compare with should have --repeats 30. All times are taken relative to what the machine reached in the same moments. A case is slower if its ratio is beyond the limit and
an interval by Mann and Whitney excludes that nothing changed; what seems slower is measured again at the end. Exit status: 3 after a warning, 4
after a failure, else 0.")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    device: DeviceArgs,

    /// Also write the results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// Small tensors and few repetitions: to see that everything runs, not how fast.
    #[arg(long)]
    quick: bool,

    /// Only the cases whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Only this operator of the table; may be repeated.
    #[arg(long, value_name = "NAME")]
    operator: Vec<String>,

    /// Only this layer; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(layer_names()))]
    layer: Vec<String>,

    /// Only this network; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(network_names()))]
    network: Vec<String>,

    /// Algebra, such as cl300 or 3,0,0, instead of the usual ones; may be repeated.
    #[arg(long, value_name = "SIGNATURE")]
    algebra: Vec<Signature>,

    /// Batch and channels, such as 4096x512, or 4096x256x512 with other channels of the output, instead of the usual ones; may be
    /// repeated.
    #[arg(long, value_name = "BATCHxCHANNELS")]
    shape: Vec<Shape>,

    /// The type of all tensors; may be repeated. If absent, f32 and f64, on a GPU f32 and bf16.
    #[arg(long, value_name = "TYPE")]
    dtype: Vec<TypeName>,

    /// How often the memory of a case is taken again; a run to compare with later should have 30.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "baseline")]
    repeats: Option<u16>,

    /// Compare with a run that --json stored on a machine of the same kind.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Warn if a case is slower by more than this many percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, requires = "baseline", value_parser = percent)]
    warn: f64,

    /// Fail if a case is slower by more than this many percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 25.0, requires = "baseline", value_parser = percent)]
    fail: f64,
}

impl BenchArgs {
    /// The effort for a case that moves so many bytes.
    fn effort(&self, bytes: usize) -> Effort {
        let usual = Effort::new(self.quick).of_bytes(bytes);
        let repeats = self.repeats.map_or(usual.repeats, usize::from);
        Effort { repeats, ..usual }
    }

    /// Whether operators are measured: they are named, or nothing is.
    fn has_operators(&self) -> bool {
        !self.operator.is_empty() || self.layer.is_empty() && self.network.is_empty()
    }

    fn networks(&self) -> NetworkSelection {
        NetworkSelection {
            layers: self.layer.clone(),
            networks: self.network.clone(),
            chosen: self.selection(),
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            operators: self.operator.clone(),
            algebras: self.algebra.clone(),
            shapes: self.shape.iter().map(|shape| shape.dims()).collect(),
            dtypes: self.dtype.iter().map(|name| name.dtype()).collect(),
            quick: self.quick,
            gpu: self.device.name() != DeviceName::Cpu,
        }
    }
}

/// Measures on a GPU.
#[cfg(feature = "cuda")]
fn on_gpu(
    args: &BenchArgs,
    before: Option<&Report>,
    (ordinal, device): (usize, &Device),
) -> Result<Report, Error> {
    let stream = device.as_cuda_device()?.cuda_stream();
    let mut gpu = flashcliff_bench::cuda::Gpu::new(ordinal, stream, args.quick)?;
    run::measure(args, before, (device, &mut gpu))
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: &BenchArgs, _: Option<&Report>, _: (usize, &Device)) -> Result<Report, Error> {
    Err(flashcliff_candle::Error::BuiltWithoutCuda.into())
}

/// A number of percent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| format!("expected percent, a number above 0, got `{text}`"))
}

/// Runs the command. The status is 3 or 4 if something is slower than in the stored run.
///
/// # Errors
/// A wrong result, a name that no case has, files that cannot be read or written.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Error> {
    if args.fail < args.warn {
        return Err(Error::OutOfRange {
            option: "--fail",
            expected: format!("at least --warn, {}", args.warn),
            got: args.fail.to_string(),
        });
    }
    let before = args.baseline.as_deref().map(beside::read).transpose()?;
    let create = |path| args.overwrite.create(path);
    let json = args.json.as_deref().map(create).transpose()?;
    let (device, before) = (args.device.open()?, before.as_ref());
    let report = match args.device.name() {
        DeviceName::Cpu => run::measure(args, before, (&device, &mut Cpu::new(args.quick)))?,
        DeviceName::Cuda(ordinal) => on_gpu(args, before, (ordinal, &device))?,
    };
    if let Some(file) = json {
        file.commit(report.json()?.as_bytes())?;
    }
    print(&table::text(&report))?;
    Ok(beside::status(&report.comparisons))
}
