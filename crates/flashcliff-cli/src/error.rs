//! The errors of the program, and how they are shown.

use std::fmt::Write;
use std::path::PathBuf;

use flashcliff_tasks::{SplitName, Task, TaskError};

use crate::device::DeviceName;

/// An error of the program. It says what was expected and what came.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// An error of the core.
    #[error(transparent)]
    Core(#[from] flashcliff::Error),

    /// A file is not a report of a benchmark.
    #[error("{}", path.display())]
    NotReport {
        path: PathBuf,
        source: flashcliff_bench::Error,
    },

    /// An error of a benchmark.
    #[error(transparent)]
    Bench(#[from] flashcliff_bench::Error),

    /// An error of the search for faster choices.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Tuner(#[from] flashcliff_tuner::Error),

    /// An error of a layer, a model or a checkpoint.
    #[error(transparent)]
    Host(#[from] flashcliff_candle::Error),

    /// An error of candle.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),

    /// An error of the algebra.
    #[error(transparent)]
    Algebra(#[from] cayley::Error),

    /// A result could not be written as JSON.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),

    /// The data could not be made.
    #[error("cannot make the data: {0}")]
    Task(#[from] TaskError),

    /// Ctrl-C cannot be caught.
    #[error("cannot catch Ctrl-C")]
    Signal(#[source] std::io::Error),

    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },

    /// A file or folder could not be written. Its former contents are untouched.
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },

    /// Another run writes to the folder.
    #[error(
        "{} is in use by {holder}: expected a folder that no other run writes to; choose another with --out, or wait for its end",
        folder.display()
    )]
    Locked { folder: PathBuf, holder: String },

    /// The last state of a run could not be saved.
    #[error("the run is done up to step {step}, but {} could not be saved: {before}", path.display())]
    StateNotSaved {
        path: PathBuf,
        step: usize,
        before: String,
        source: Box<Error>,
    },

    /// A signal came before there was anything to save.
    #[error(
        "stopped by a signal before the first step: nothing is saved; what was saved before is as it was"
    )]
    Stopped,

    /// A file is not a complete safetensors file.
    #[error("{}: expected a complete safetensors file", path.display())]
    NotSafetensors {
        path: PathBuf,
        source: safetensors::SafeTensorError,
    },

    /// A file lacks a tensor.
    #[error("{}: expected tensors {expected}, got no `{tensor}`", path.display())]
    MissingTensor {
        path: PathBuf,
        tensor: String,
        expected: String,
    },

    /// A file holds a tensor that the operator does not take.
    #[error("{}: expected tensors {expected}, got also `{tensor}`", path.display())]
    UnexpectedTensor {
        path: PathBuf,
        tensor: String,
        expected: String,
    },

    /// A tensor of a file has another element type.
    #[error("{}: tensor `{tensor}` must be of type {expected}, got {got}", path.display())]
    TensorType {
        path: PathBuf,
        tensor: String,
        expected: String,
        got: String,
    },

    /// A tensor has another shape.
    #[error("{operator}: tensor `{tensor}` must be {expected}, got {got:?}")]
    TensorShape {
        operator: String,
        tensor: String,
        expected: String,
        got: Vec<usize>,
    },

    /// A file of the name of an output is there, and would be lost.
    #[error("{} exists: expected a name that no file has; choose another, or replace it with --overwrite", path.display())]
    FileExists { path: PathBuf },

    /// Two outputs have one name, so that one of them would be lost.
    #[error("{} and {}: expected two files, got one name for both", options[0], options[1])]
    OneFile { options: [&'static str; 2] },

    /// A folder holds results that would be lost.
    #[error(
        "{} holds {file} of an earlier run: expected an empty or new folder; choose another with --out, continue an unfinished run with --resume, \
         or replace its results with --overwrite",
        folder.display()
    )]
    OutputExists { folder: PathBuf, file: &'static str },

    /// A file is a checkpoint, but not of a training run.
    #[error("{}: expected the state of a training run, got {reason}", path.display())]
    NotState { path: PathBuf, reason: String },

    /// Weights were trained for another task.
    #[error("{}: expected weights of {expected}, got weights of {got}; choose another file, or measure these with `eval {got}`", path.display())]
    WeightsOfTask {
        path: PathBuf,
        expected: Task,
        got: Task,
    },

    /// Weights do not fit the network of the task.
    #[error("{}: expected the weights of the network of {task}", path.display())]
    Weights {
        path: PathBuf,
        task: Task,
        source: Box<flashcliff_candle::Error>,
    },

    /// A file of weights holds one that the network does not have.
    #[error("{}: expected the weights of the network of {task} alone, got also `{tensor}`", path.display())]
    UnexpectedWeight {
        path: PathBuf,
        task: Task,
        tensor: String,
    },

    /// A setting is out of its range.
    #[error("{option}: expected {expected}, got {got}")]
    OutOfRange {
        option: &'static str,
        expected: String,
        got: String,
    },

    /// An option contradicts the run that is resumed.
    #[error(
        "--resume continues the run as it was begun: expected {option} {expected} or no such option, got {got}"
    )]
    ResumeConflict {
        option: &'static str,
        expected: String,
        got: String,
    },

    /// A precision that only GPUs have.
    #[error(
        "--precision {got}: expected highest on the CPU, got {got}; choose a GPU with --device cuda"
    )]
    PrecisionOnCpu { got: String },

    /// Several GPUs for a run that has another device.
    #[error(
        "{ranks} processes of a run on GPUs need --device cuda, which is GPU 0 for rank 0, GPU 1 for rank 1, ...; got {device}"
    )]
    RanksOnDevice { ranks: usize, device: DeviceName },

    /// The option that starts ranks, in a rank.
    #[error(
        "--gpus {gpus} starts the processes of a run itself: expected no such option where RANK and WORLD_SIZE say that this process is one of {ranks} ranks"
    )]
    GpusUnderRanks { gpus: usize, ranks: usize },

    /// More GPUs than the machine has.
    #[error(
        "--gpus: expected at most the {found} GPUs of this machine, got {expected}; `flashcliff info` lists them"
    )]
    TooFewGpus { expected: usize, found: usize },

    /// A process of a run on several GPUs could not be started.
    #[error("cannot start rank {rank}")]
    RankNotStarted { rank: usize, source: std::io::Error },

    /// A process of a run on several GPUs failed, and with it the run.
    #[error(
        "rank {rank} of {size} {how}, so all have ended; its messages, and those of rank 0, come before this one"
    )]
    RankFailed {
        rank: usize,
        size: usize,
        how: String,
    },

    /// A precision that the steps of a network cannot have.
    #[error(
        "--precision {got}: expected highest or tf32 for {network}, got {got}; its steps go through candle's graph, which has no 16 bits: \
         hulls, regression and volumes have them"
    )]
    PrecisionOfNetwork { got: String, network: &'static str },

    /// The loss is infinite or not a number.
    #[error(
        "training diverged: expected a finite loss, got {loss} at step {step}; a smaller --lr may help"
    )]
    Diverged { step: usize, loss: f64 },

    /// The gradient is infinite or not a number, though the loss is not.
    #[error(
        "training diverged: expected a finite gradient at step {step}; a smaller --lr or --clip-norm may help"
    )]
    GradientNotFinite { step: usize },

    /// Steps cannot be captured, though the user insists on it.
    #[error("--capture on: expected a step that can be captured as a CUDA graph; {reason}")]
    NotCaptured { reason: String },

    /// The error on data that are not used for training is infinite or not a number.
    #[error(
        "training diverged: expected a finite {split} error, got {error} after step {step}; a smaller --lr may help"
    )]
    DivergedOn {
        split: SplitName,
        step: usize,
        error: f64,
    },

    /// A picture could not be drawn.
    #[error("cannot draw the picture: {reason}")]
    Plot { reason: String },

    /// No operator has this name.
    #[error("unknown operator `{got}`: expected one of {expected}")]
    UnknownOperator { expected: String, got: String },

    /// Nothing that was chosen runs so.
    #[error(
        "no benchmark case is left: expected names, types, algebras and shapes that go together on this device, got {got}"
    )]
    NoCase { got: String },

    /// No case has this name.
    #[error("no benchmark case contains `{got}`: expected a part of {expected}")]
    UnknownCase { expected: String, got: String },
}

impl Error {
    /// Whether numbers of a training run ceased to be finite, which was found before the weights were changed.
    pub(crate) fn is_divergence(&self) -> bool {
        matches!(
            self,
            Self::Diverged { .. } | Self::GradientNotFinite { .. } | Self::DivergedOn { .. }
        )
    }
}

/// An error with its causes, one on each line, as `main` prints it.
pub(crate) fn report(error: &dyn std::error::Error) -> String {
    let mut text = format!("error: {error}\n");
    let mut last = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Some libraries repeat the cause in their own message.
        if !last.contains(&message) {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "  caused by: {message}");
        }
        last = message;
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_shown_once() {
        let error = Error::Write {
            path: "a/b".into(),
            source: std::io::Error::other("disk full"),
        };
        assert_eq!(
            report(&error),
            "error: cannot write a/b\n  caused by: disk full\n"
        );
        let repeated = Error::Host(flashcliff_candle::Error::Write {
            path: "a/b".into(),
            source: std::io::Error::other("disk full"),
        });
        assert_eq!(report(&repeated), "error: cannot write a/b: disk full\n");
    }
}
