//! The settings that determine a run, bit for bit.

use std::num::NonZero;
use std::path::Path;

use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::{Architecture, ModelOptions};
use flashcliff_tasks::{Sizes, Task, bodies};
use serde::{Deserialize, Serialize};

use super::TrainArgs;
use super::model::ModelName;
use super::optimiser::{Optimiser, name};
use super::precision::PrecisionName;
use super::ramps;
use crate::error::Error;
use crate::memory::room_for;

/// The name of the settings in a checkpoint.
const STORED: &str = "settings";
/// The largest size of a split: about 3 GB of points.
const MAX_SAMPLES: usize = 1 << 22;
/// The largest number of steps. Each step leaves a loss in the history.
const MAX_STEPS: usize = 1 << 28;
/// How often the validation error is measured in a run.
const VALIDATIONS: usize = 32;
/// The steps from one validation of charged bodies to the next, as in CGENN's run.
const BETWEEN_VALIDATIONS: usize = 128;
/// The steps from one validation on simplicial complexes to the next, as in CSMPN's run.
const BETWEEN_VALIDATIONS_OF_CSMPN: usize = 1024;
/// How often the learning rate of gravity falls in a run, each time by this factor: to a hundredth of what it was. The published run falls
/// every 1000 of 5001 steps.
const DECAYS: usize = 5;
const DECAY: f64 = 0.398_107_170_553_497_3;

/// The samples that a task has unless others are asked for.
pub(super) fn default_sizes(task: Task) -> Sizes {
    Settings::usual(task).sizes()
}

/// The seed of the data of a task unless another is asked for: that of the published files, if a seed makes them.
pub(super) fn default_data_seed(task: Task) -> u64 {
    match task {
        Task::Bodies | Task::Bodies5d => u64::from(bodies::SEED),
        _ => 0,
    }
}

/// The settings of a run, stored with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    task: String,
    /// States of before there was a choice have the network of the paper.
    #[serde(default, skip_serializing_if = "ModelName::is_published")]
    model: ModelName,
    pub(super) samples: usize,
    pub(super) steps: usize,
    pub(super) batch: usize,
    /// The seed of weights and batches, and of data without their own seed.
    pub(super) seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data_seed: Option<u64>,
    #[serde(flatten)]
    pub(super) optimiser: Optimiser,
    /// The probability of dropout, not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropout: Option<f64>,
    pub(super) val_samples: usize,
    pub(super) test_samples: usize,
    /// The number of steps from one validation to the next. One more validation comes after the last step.
    pub(super) val_every: usize,
    /// The number of steps from one fall of the learning rate to the next, if it falls.
    #[serde(default)]
    decay_every: Option<usize>,
    /// Whether the learning rate grows at the start and falls at the end, as in the runs of CGENN and CSMPN, and of networks of flashcliff.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ramps: bool,
    /// States of before there was a choice have the highest.
    #[serde(default)]
    pub(super) precision: PrecisionName,
}

impl Settings {
    /// The defaults of a task.
    pub(super) fn usual(task: Task) -> Self {
        let small = |samples, steps, batch| Self {
            task: task.name().to_owned(),
            model: ModelName::default(),
            samples,
            steps,
            batch,
            seed: 0,
            data_seed: None,
            optimiser: Optimiser::default(),
            dropout: None,
            val_samples: 2048,
            test_samples: 4096,
            val_every: 1,
            decay_every: None,
            ramps: false,
            precision: PrecisionName::default(),
        };
        // CGENN's run on EGNN's files.
        let charged = |steps, batch| Self {
            val_samples: bodies::PUBLISHED.val,
            test_samples: bodies::PUBLISHED.test,
            optimiser: Optimiser {
                learning_rate: 4e-3,
                weight_decay: 1e-4,
                ..Optimiser::default()
            },
            ..small(bodies::PUBLISHED.train, steps, batch)
        };
        let settings = match task {
            Task::Hulls => small(1024, 1024, 128),
            Task::Regression => small(300, 1000, 15),
            // CGENN trains on 65,536 samples for 131,072 steps of this batch.
            Task::Volumes => small(16_384, 4096, 128),
            // GATr's run on 1000 samples.
            Task::Gravity => Self {
                val_samples: 5000,
                test_samples: 5000,
                optimiser: Optimiser {
                    learning_rate: 3e-4,
                    clip_norm: Some(10.0),
                    ..Optimiser::default()
                },
                ..small(1000, 5001, 64)
            },
            Task::Bodies => charged(131_072, 100),
            // GLGENN's largest budget. It does not say how it learns: that is as in CGENN's run.
            Task::Bodies5d => charged(4096, 128),
            // CSMPN's run.
            Task::Complexes => Self {
                val_samples: 16_384,
                test_samples: 16_384,
                ..small(16_384, 131_072, 16)
            },
            // Our choice: less than a minute on two cores.
            Task::Forces => Self {
                val_samples: 256,
                test_samples: 256,
                optimiser: Optimiser {
                    learning_rate: 1e-2,
                    clip_norm: Some(10.0),
                    ..Optimiser::default()
                },
                ..small(512, 2000, 8)
            },
        };
        settings.with_intervals(true)
    }

    /// Adds the settings to a checkpoint.
    ///
    /// # Errors
    /// [`Error::Json`].
    pub(super) fn store(&self, checkpoint: &mut Checkpoint) -> Result<(), Error> {
        checkpoint.insert_text(STORED, serde_json::to_string(self)?);
        Ok(())
    }

    /// The settings that a checkpoint has, if there are any. The path is that of errors.
    ///
    /// # Errors
    /// [`Error::NotState`], [`Error::OutOfRange`].
    pub(super) fn stored(checkpoint: &Checkpoint, path: &Path) -> Result<Option<Self>, Error> {
        let not_state = |reason: String| Error::NotState {
            path: path.to_owned(),
            reason,
        };
        let Some(text) = checkpoint.text(STORED) else {
            return Ok(None);
        };
        let settings: Self =
            serde_json::from_str(text).map_err(|error| not_state(format!("{STORED}: {error}")))?;
        if !settings.task_is_known() {
            return Err(not_state("an unknown task".to_owned()));
        }
        settings.check()?;
        Ok(Some(settings))
    }

    /// The settings of the command line, with the defaults of its task.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub(super) fn new(args: &TrainArgs) -> Result<Self, Error> {
        let decays = args.optimiser.schedule.is_none();
        let settings = Self::usual(args.task.task());
        let settings = settings.with_model(args.model.unwrap_or_default());
        let settings = settings.with(args).with_intervals(decays);
        settings.check()?;
        Ok(settings)
    }

    /// The settings of another network for the same task.
    fn with_model(self, model: ModelName) -> Self {
        let own = self.optimiser.learning_rate;
        let learning_rate = model.learning_rate().unwrap_or(own);
        let optimiser = Optimiser {
            learning_rate,
            ..self.optimiser
        };
        Self {
            model,
            optimiser,
            ..self
        }
    }

    /// These settings with what a command line says besides.
    fn with(&self, args: &TrainArgs) -> Self {
        let or = |given: Option<NonZero<usize>>, own| given.map_or(own, usize::from);
        // A schedule takes the place of the task's own.
        let own = args.optimiser.schedule.is_none();
        Self {
            decay_every: self.decay_every.filter(|_| own),
            ramps: self.ramps && own,
            task: args.task.task().name().to_owned(),
            model: args.model.unwrap_or(self.model),
            samples: args.samples.unwrap_or(self.samples),
            steps: or(args.steps, self.steps),
            batch: or(args.batch, self.batch),
            seed: args.seed.unwrap_or(self.seed),
            data_seed: args.data_seed.or(self.data_seed),
            optimiser: self.optimiser.with(&args.optimiser, args.lr),
            dropout: args.dropout.or(self.dropout).filter(|&p| p != 0.0),
            val_samples: or(args.val_samples, self.val_samples),
            test_samples: or(args.test_samples, self.test_samples),
            precision: args.precision.unwrap_or(self.precision),
            ..self.clone()
        }
    }

    /// The settings with the intervals that follow from the steps. The learning rate of gravity falls, if it may.
    fn with_intervals(self, decays: bool) -> Self {
        let each = |parts: usize| (self.steps / parts).max(1);
        let task = self.task();
        let falls = task == Task::Gravity;
        let ramps = !self.model.is_published()
            || matches!(
                task,
                Task::Bodies | Task::Bodies5d | Task::Complexes | Task::Forces
            );
        Self {
            val_every: match task {
                Task::Gravity => each(DECAYS),
                Task::Bodies | Task::Bodies5d => BETWEEN_VALIDATIONS.min(self.steps),
                Task::Complexes => BETWEEN_VALIDATIONS_OF_CSMPN.min(self.steps),
                _ => each(VALIDATIONS),
            },
            decay_every: (falls && decays).then(|| each(DECAYS)),
            ramps: ramps && decays,
            ..self
        }
    }

    /// Checks the ranges of settings from a command line or a file.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub(super) fn check(&self) -> Result<(), Error> {
        let limits = [
            ("--batch", self.batch, MAX_SAMPLES),
            ("--samples", self.samples, MAX_SAMPLES),
            ("--val-samples", self.val_samples, MAX_SAMPLES),
            ("--test-samples", self.test_samples, MAX_SAMPLES),
            ("--steps", self.steps, MAX_STEPS),
            ("val_every", self.val_every, MAX_STEPS),
            ("decay_every", self.decay_every.unwrap_or(1), MAX_STEPS),
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
        self.model.check(self.task())?;
        self.check_dropout()?;
        self.optimiser
            .check(self.steps, self.batch.min(self.samples))
    }

    fn check_dropout(&self) -> Result<(), Error> {
        let Some(p) = self.dropout else {
            return Ok(());
        };
        let task = self.task();
        let expected = match self.architecture().has_dropout() {
            true if (0.0..1.0).contains(&p) => return Ok(()),
            true => "a probability p with 0 <= p < 1".to_owned(),
            false => format!("0, because the network of {} has no dropout", task.name()),
        };
        Err(Error::OutOfRange {
            option: "--dropout",
            expected,
            got: p.to_string(),
        })
    }

    /// Checks that the data fit in memory, and the activations of a step without a plan, with
    /// gradient checkpointing or not. A plan checks its own memory when it is made.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`].
    pub(super) fn check_memory(&self, checkpointing: bool) -> Result<(), Error> {
        let task = self.task();
        let numbers = (task.points() * task.dim() + task.target_len()) as u128;
        // The bytes that each sample of a batch added to the measured memory of a run.
        let activations: u128 = match (self.architecture().has_plan(), checkpointing) {
            (true, _) => 0,
            (false, false) => 2 << 20,
            (false, true) => 448 << 10,
        };
        // The data are drawn in f64 and kept in f32.
        let data = self.sizes().total() as u128 * numbers * 12;
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

    /// The learning rate of a step counted from 0, before the schedule, and the first step with another. As in the
    /// published run it falls after the steps that a multiple of the interval counts.
    pub(super) fn learning_rate(&self, step: usize) -> (f64, Option<usize>) {
        let rate = self.optimiser.learning_rate;
        if self.ramps {
            let (factor, next) = ramps::factor(step, self.steps);
            return (rate * factor, next);
        }
        let Some(every) = self.decay_every else {
            return (rate, None);
        };
        let falls = step.saturating_sub(1) / every;
        let next = (falls + 1).saturating_mul(every).saturating_add(1);
        // No run falls more often than a number of this type counts.
        let falls = i32::try_from(falls).unwrap_or(i32::MAX);
        (rate * DECAY.powi(falls), Some(next))
    }

    /// Checks that a command line with `--resume` asks for these settings and no others.
    ///
    /// # Errors
    /// [`Error::ResumeConflict`].
    pub(super) fn check_against(&self, args: &TrainArgs) -> Result<(), Error> {
        let (own, asked) = (self.described(), self.with(args).described());
        match own.into_iter().zip(asked).find(|(own, asked)| own != asked) {
            None => Ok(()),
            Some(((option, expected), (_, got))) => Err(Error::ResumeConflict {
                option,
                expected,
                got,
            }),
        }
    }

    /// The options of a command line that makes these settings, with their values.
    fn described(&self) -> Vec<(&'static str, String)> {
        let mut options = vec![
            ("the task", self.task.clone()),
            ("--model", name(self.model)),
            ("--samples", self.samples.to_string()),
            ("--steps", self.steps.to_string()),
            ("--batch", self.batch.to_string()),
            ("--seed", self.seed.to_string()),
            ("--data-seed", self.data_seed().to_string()),
            ("--val-samples", self.val_samples.to_string()),
            ("--test-samples", self.test_samples.to_string()),
            ("--precision", name(self.precision)),
            ("--dropout", self.dropout.unwrap_or(0.0).to_string()),
        ];
        options.extend(self.optimiser.described());
        let schedule = match self.ramps || self.decay_every.is_some() {
            true => "as the task has it".to_owned(),
            false => name(self.optimiser.schedule),
        };
        options.push(("--schedule", schedule));
        options
    }

    /// The task.
    pub(super) fn task(&self) -> Task {
        let mut tasks = Task::ALL.into_iter();
        let named = tasks.find(|task| task.name() == self.task);
        named.unwrap_or(Task::Hulls)
    }

    /// Whether the stored name is the name of a task.
    fn task_is_known(&self) -> bool {
        self.task == self.task().name()
    }

    /// The network for the task.
    pub(super) fn architecture(&self) -> Architecture {
        let own = self.model.architecture(self.task());
        own.unwrap_or(Architecture::Hulls)
    }

    /// The options of the network.
    pub(super) fn model(&self) -> ModelOptions {
        ModelOptions {
            dropout: self.dropout,
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

    /// The seed of the data.
    pub(super) fn data_seed(&self) -> u64 {
        let usual = match self.task() {
            task @ (Task::Bodies | Task::Bodies5d) => default_data_seed(task),
            _ => self.seed,
        };
        self.data_seed.unwrap_or(usual)
    }

    /// The seeds as text for people.
    pub(super) fn seeds(&self) -> String {
        let seed = self.seed;
        match self.data_seed {
            Some(data) => format!("seed {seed}, data of seed {data}"),
            None => format!("seed {seed}"),
        }
    }

    /// Name of the default output folder.
    pub(super) fn run_name(&self) -> String {
        let of_data = self.data_seed.map(|seed| format!("-d{seed}"));
        let of_data = of_data.unwrap_or_default();
        let model = match self.model {
            ModelName::Published => String::new(),
            own => format!("-{}", name(own)),
        };
        let (task, samples, seed) = (&self.task, self.samples, self.seed);
        format!("{task}{model}-{samples}-s{seed}{of_data}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_gravity_falls_after_every_thousandth_step_to_a_hundredth() {
        let settings = Settings::usual(Task::Gravity);
        assert_eq!(settings.learning_rate(0), (3e-4, Some(1001)));
        assert_eq!(settings.learning_rate(1000), (3e-4, Some(1001)));
        assert_eq!(settings.learning_rate(1001), (3e-4 * DECAY, Some(2001)));
        let (last, _) = settings.learning_rate(5001);
        assert!((last / 3e-6 - 1.0).abs() < 1e-12, "{last}");
        let constant = Settings {
            decay_every: None,
            ..settings
        };
        assert_eq!(constant.learning_rate(4000), (3e-4, None));
    }
}
