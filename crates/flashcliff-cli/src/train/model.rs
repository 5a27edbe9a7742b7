//! The network of a task.

use clap::ValueEnum;
use flashcliff_candle::models::Architecture;
use flashcliff_tasks::Task;
use serde::{Deserialize, Serialize};

use super::optimiser::name;
use crate::error::Error;

/// The width of the perceptron of the regression model, as in the published small budgets.
const REGRESSION_WIDTH: usize = 380;

/// A network on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModelName {
    /// The network of the task's paper.
    #[default]
    Published,
    /// For hulls: volumes that follow every affine map, from inner products in the frame of second moments.
    Affine,
    /// For regression: a perceptron of all invariants of both vectors.
    Invariants,
}

impl ModelName {
    /// Whether it is the network of the task's paper.
    pub(super) fn is_published(&self) -> bool {
        *self == Self::Published
    }

    /// The learning rate that it has unless another is asked for; `None` for that of the task.
    pub(super) fn learning_rate(self) -> Option<f64> {
        match self {
            Self::Published => None,
            Self::Affine => Some(1e-2),
            Self::Invariants => Some(1e-3),
        }
    }

    /// The network for a task; `None` where the task does not have this one.
    pub(super) fn architecture(self, task: Task) -> Option<Architecture> {
        Some(match (self, task) {
            (Self::Published, Task::Hulls) => Architecture::Hulls,
            (Self::Published, Task::Regression) => Architecture::Regression {
                width: REGRESSION_WIDTH,
            },
            (Self::Published, Task::Volumes) => Architecture::Volumes,
            (Self::Published, Task::Gravity) => Architecture::Gravity,
            (Self::Published, Task::Bodies) => Architecture::Bodies,
            (Self::Published, Task::Bodies5d) => Architecture::Bodies5d,
            (Self::Published, Task::Complexes) => Architecture::SimplicialHulls,
            (Self::Published, Task::Forces) => Architecture::Forces,
            (Self::Affine, Task::Hulls) => Architecture::AffineHulls,
            (Self::Invariants, Task::Regression) => Architecture::Invariants,
            (Self::Affine | Self::Invariants, _) => return None,
        })
    }

    /// Checks that a task has the network.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub(super) fn check(self, task: Task) -> Result<(), Error> {
        if self.architecture(task).is_some() {
            return Ok(());
        }
        let all = Self::value_variants().iter();
        let own = all.filter(|own| own.architecture(task).is_some());
        let own: Vec<String> = own.map(|&own| name(own)).collect();
        Err(Error::OutOfRange {
            option: "--model",
            expected: format!("a network of {}: {}", task.name(), own.join(" or ")),
            got: name(self),
        })
    }
}
