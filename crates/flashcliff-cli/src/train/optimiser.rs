//! The options of the optimiser and of its schedule.

use std::num::NonZero;

use clap::{Args, ValueEnum};
use flashcliff_candle::optim::{AdamOptions, Schedule, ScheduleShape};
use serde::{Deserialize, Serialize};

use crate::cli::from_one;
use crate::error::Error;

/// The options on the command line.
#[derive(Debug, Default, Args)]
pub(super) struct OptimiserArgs {
    /// Optimiser [default: adam].
    #[arg(long, value_name = "NAME")]
    pub(super) optimizer: Option<OptimizerName>,

    /// Decay of the weights: added to the gradient by adam, apart from it by adamw and lion [default: 0; nbody
    /// and nbody5d: 0.0001].
    #[arg(long, value_name = "DECAY", allow_negative_numbers = true)]
    pub(super) weight_decay: Option<f64>,

    /// Clip the global gradient norm to this value [default: off; gravity and forces: 10].
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    pub(super) clip_norm: Option<f64>,

    /// Bound on the norm that follows the norms of the last steps, instead of --clip-norm [default: none].
    #[arg(long, value_name = "HOW", conflicts_with = "clip_norm")]
    pub(super) clip: Option<ClipName>,

    /// Parts of a batch that are computed one after the other, for less memory; their gradients are summed [default: 1].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    pub(super) accumulate: Option<NonZero<usize>>,

    /// Learning rate after the warm-up, over the steps of the run [default: constant, or the one of the task, see below].
    #[arg(long, value_name = "SHAPE")]
    pub(super) schedule: Option<ScheduleName>,

    /// Steps in which the learning rate grows to --lr [default: 0].
    #[arg(long, value_name = "N")]
    pub(super) warmup: Option<usize>,
}

/// An optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OptimizerName {
    /// Adam; the decay is an L2 penalty.
    #[default]
    Adam,
    /// AdamW; the decay is decoupled.
    #[value(name = "adamw")]
    #[serde(rename = "adamw")]
    AdamW,
    /// Lion; the decay is decoupled. It wants a third to a tenth of the learning rate of adamw.
    Lion,
}

/// A rule for the largest norm of the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ClipName {
    /// 1.5 times the mean and 2 times the standard deviation of the norms of the last 50 steps, clipped ones as they were clipped.
    Adaptive,
}

/// A schedule of the learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ScheduleName {
    /// One rate for all steps.
    #[default]
    Constant,
    /// To 0 along (1 + cos(pi t)) / 2.
    Cosine,
    /// To 0 along cos(pi t / 2).
    HalfCosine,
}

/// The name of a value on the command line.
pub(super) fn name(value: impl ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The settings of the optimiser, stored with a run. States of before have none of them but the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Optimiser {
    pub(super) learning_rate: f64,
    #[serde(default)]
    pub(super) optimizer: OptimizerName,
    #[serde(default)]
    pub(super) weight_decay: f64,
    #[serde(default)]
    pub(super) clip_norm: Option<f64>,
    #[serde(default)]
    pub(super) clip: Option<ClipName>,
    #[serde(default = "one")]
    pub(super) accumulate: usize,
    #[serde(default)]
    pub(super) schedule: ScheduleName,
    #[serde(default)]
    pub(super) warmup: usize,
}

/// The parts of a batch in states of before there were any.
fn one() -> usize {
    1
}

impl Default for Optimiser {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            optimizer: OptimizerName::default(),
            weight_decay: 0.0,
            clip_norm: None,
            clip: None,
            accumulate: one(),
            schedule: ScheduleName::default(),
            warmup: 0,
        }
    }
}

impl Optimiser {
    /// These settings with what a command line says besides. One bound on the norm takes the place of the other.
    pub(super) fn with(&self, args: &OptimiserArgs, learning_rate: Option<f64>) -> Self {
        let own_norm = self.clip_norm.filter(|_| args.clip.is_none());
        Self {
            learning_rate: learning_rate.unwrap_or(self.learning_rate),
            optimizer: args.optimizer.unwrap_or(self.optimizer),
            weight_decay: args.weight_decay.unwrap_or(self.weight_decay),
            clip_norm: args.clip_norm.or(own_norm),
            clip: args.clip.or(self.clip),
            accumulate: args.accumulate.map_or(self.accumulate, usize::from),
            schedule: args.schedule.unwrap_or(self.schedule),
            warmup: args.warmup.unwrap_or(self.warmup),
        }
    }

    /// Checks the ranges, for a run of so many steps on batches of so many samples.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub(super) fn check(&self, steps: usize, rows: usize) -> Result<(), Error> {
        let (rate, decay, parts) = (self.learning_rate, self.weight_decay, self.accumulate);
        let is_norm = |norm: f64| norm.is_finite() && norm > 0.0;
        let above = || "a finite number above 0".to_owned();
        let both = self.clip.is_some() && self.clip_norm.is_some();
        let norm = || {
            self.clip_norm
                .map_or(String::new(), |norm| norm.to_string())
        };
        let of_parts = format!("a number that divides the {rows} samples of a batch");
        let ranges = [
            ("--lr", above(), rate.to_string(), is_norm(rate)),
            (
                "--weight-decay",
                "a finite number from 0 up".to_owned(),
                decay.to_string(),
                decay.is_finite() && decay >= 0.0,
            ),
            (
                "--clip-norm",
                above(),
                norm(),
                self.clip_norm.is_none_or(is_norm),
            ),
            (
                "--clip-norm",
                "no norm beside --clip".to_owned(),
                norm(),
                !both,
            ),
            (
                "--accumulate",
                of_parts,
                parts.to_string(),
                parts > 0 && rows.is_multiple_of(parts),
            ),
            (
                "--warmup",
                format!("at most the {steps} steps of the run"),
                self.warmup.to_string(),
                self.warmup <= steps,
            ),
        ];
        match ranges.into_iter().find(|(.., fits)| !fits) {
            None => Ok(()),
            Some((option, expected, got, _)) => Err(Error::OutOfRange {
                option,
                expected,
                got,
            }),
        }
    }

    /// The options of a command line that makes these settings, with their values, but for the schedule, which the task may have.
    pub(super) fn described(&self) -> [(&'static str, String); 7] {
        let clip_norm = self.clip_norm.map(|norm| norm.to_string());
        [
            ("--lr", self.learning_rate.to_string()),
            ("--optimizer", name(self.optimizer)),
            ("--weight-decay", self.weight_decay.to_string()),
            ("--clip", self.clip.map_or("none".to_owned(), name)),
            ("--clip-norm", clip_norm.unwrap_or("any".to_owned())),
            ("--accumulate", self.accumulate.to_string()),
            ("--warmup", self.warmup.to_string()),
        ]
    }

    /// The options of the library, for a run of so many steps. A refused step is the last one, so that the state is that before it.
    pub(super) fn options(&self, steps: usize) -> AdamOptions {
        let shape = match self.schedule {
            ScheduleName::Constant => ScheduleShape::Constant,
            ScheduleName::Cosine => ScheduleShape::Cosine,
            ScheduleName::HalfCosine => ScheduleShape::HalfCosine,
        };
        let published = match self.optimizer {
            OptimizerName::Adam | OptimizerName::AdamW => AdamOptions::default(),
            OptimizerName::Lion => AdamOptions::lion(),
        };
        AdamOptions {
            learning_rate: self.learning_rate,
            weight_decay: self.weight_decay,
            decoupled: self.optimizer != OptimizerName::Adam,
            clip_norm: self.clip_norm,
            adaptive_clipping: self.clip == Some(ClipName::Adaptive),
            schedule: Schedule::new(shape, steps as u64).with_warmup(self.warmup as u64),
            halt: true,
            ..published
        }
    }
}
