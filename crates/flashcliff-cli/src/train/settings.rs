//! The settings that determine a run, bit for bit.

use flashcliff_candle::models::Architecture;
use flashcliff_tasks::{Sizes, Task};
use serde::{Deserialize, Serialize};

use super::TrainArgs;
use super::optimiser::{Optimiser, name};
use super::precision::PrecisionName;
use crate::error::Error;
use crate::memory::room_for;

/// The largest size of a split: about 3 GB of points.
const MAX_SAMPLES: usize = 1 << 22;
/// The largest number of steps. Each step leaves a loss in the history.
const MAX_STEPS: usize = 1 << 28;
/// How often the validation error is measured in a run.
const VALIDATIONS: usize = 32;
/// The width of the perceptron of the regression model, as in the published small budgets.
const REGRESSION_WIDTH: usize = 380;

/// The settings of a run, stored with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    task: String,
    pub(super) samples: usize,
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) seed: u64,
    #[serde(flatten)]
    pub(super) optimiser: Optimiser,
    pub(super) val_samples: usize,
    pub(super) test_samples: usize,
    /// The number of steps from one validation to the next. One more validation comes after the last step.
    pub(super) val_every: usize,
    /// States of before there was a choice have the highest.
    #[serde(default)]
    pub(super) precision: PrecisionName,
}

impl Settings {
    /// The settings of the command line, with the defaults of its task.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub(super) fn new(args: &TrainArgs) -> Result<Self, Error> {
        let task = args.task.task();
        let (samples, steps, batch) = match task {
            Task::Hulls => (1024, 1024, 128),
            Task::Regression => (300, 1000, 15),
            // CGENN trains on 65,536 samples for 131,072 steps of this batch.
            Task::Volumes => (16_384, 4096, 128),
        };
        let steps = args.steps.map_or(steps, usize::from);
        let settings = Self {
            task: task.name().to_owned(),
            samples: args.samples.unwrap_or(samples),
            steps,
            batch: args.batch.map_or(batch, usize::from),
            seed: args.seed.unwrap_or(0),
            optimiser: Optimiser::new(&args.optimiser, args.lr),
            val_samples: args.val_samples.map_or(2048, usize::from),
            test_samples: args.test_samples.map_or(4096, usize::from),
            val_every: (steps / VALIDATIONS).max(1),
            precision: args.precision.unwrap_or_default(),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Checks the ranges of settings from a command line or a file.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub(super) fn check(&self) -> Result<(), Error> {
        let limits = [
            ("--samples", self.samples, MAX_SAMPLES),
            ("--val-samples", self.val_samples, MAX_SAMPLES),
            ("--test-samples", self.test_samples, MAX_SAMPLES),
            ("--steps", self.steps, MAX_STEPS),
            ("--batch", self.batch, MAX_SAMPLES),
            ("val_every", self.val_every, MAX_STEPS),
        ];
        for (option, got, max) in limits {
            if !(1..=max).contains(&got) {
                return Err(Error::OutOfRange {
                    option,
                    expected: format!("a number from 1 to {max}"),
                    got: got.to_string(),
                });
            }
        }
        self.optimiser
            .check(self.steps, self.batch.min(self.samples))
    }

    /// Checks that the data and the activations of a step fit in memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn check_memory(&self) -> Result<(), Error> {
        let task = self.task();
        let coordinates = (task.points() * task.dim()) as u128;
        // The bytes that each sample of a batch added to the measured memory of a run.
        let activations = match task {
            Task::Hulls => 72 << 10,
            Task::Regression => 27 << 10,
            Task::Volumes => 42 << 10,
        };
        // The data are drawn in f64 and kept in f32, with a target for each sample.
        let data = self.sizes().total() as u128 * (coordinates + 1) * 12;
        let batch = self.batch.min(self.samples) as u128 * activations;
        room_for(
            format!(
                "training with {} samples in batches of {}",
                self.sizes().total(),
                self.batch.min(self.samples)
            ),
            data + batch,
        )
    }

    /// Checks that a command line with `--resume` asks for these settings and no others.
    ///
    /// # Errors
    /// [`Error::ResumeConflict`].
    pub(super) fn check_against(&self, args: &TrainArgs) -> Result<(), Error> {
        let number = |n: Option<usize>| n.map(|n| n.to_string());
        let options = [
            (
                "the task",
                self.task.clone(),
                Some(args.task.task().name().to_owned()),
            ),
            ("--samples", self.samples.to_string(), number(args.samples)),
            (
                "--steps",
                self.steps.to_string(),
                number(args.steps.map(usize::from)),
            ),
            (
                "--batch",
                self.batch.to_string(),
                number(args.batch.map(usize::from)),
            ),
            (
                "--seed",
                self.seed.to_string(),
                args.seed.map(|seed| seed.to_string()),
            ),
            (
                "--val-samples",
                self.val_samples.to_string(),
                number(args.val_samples.map(usize::from)),
            ),
            (
                "--test-samples",
                self.test_samples.to_string(),
                number(args.test_samples.map(usize::from)),
            ),
            (
                "--precision",
                name(self.precision),
                args.precision.map(name),
            ),
        ];
        let optimiser = self.optimiser.repeated(&args.optimiser, args.lr);
        for (option, expected, got) in options.into_iter().chain(optimiser) {
            if let Some(got) = got
                && got != expected
            {
                return Err(Error::ResumeConflict {
                    option,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }

    /// The task.
    pub(super) fn task(&self) -> Task {
        let mut tasks = Task::ALL.into_iter();
        let named = tasks.find(|task| task.name() == self.task);
        named.unwrap_or(Task::Hulls)
    }

    /// Whether the stored name is the name of a task.
    pub(super) fn task_is_known(&self) -> bool {
        self.task == self.task().name()
    }

    /// The network for the task.
    pub(super) fn architecture(&self) -> Architecture {
        match self.task() {
            Task::Hulls => Architecture::Hulls,
            Task::Regression => Architecture::Regression {
                width: REGRESSION_WIDTH,
            },
            Task::Volumes => Architecture::Volumes,
        }
    }

    /// The sizes of the splits.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            train: self.samples,
            val: self.val_samples,
            test: self.test_samples,
        }
    }

    /// Name of the default output folder.
    pub(super) fn run_name(&self) -> String {
        format!("{}-{}-s{}", self.task, self.samples, self.seed)
    }
}
