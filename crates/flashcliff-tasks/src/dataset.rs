//! Samples with their targets, and the metric.

use crate::sampling::RawSplit;
use crate::{Task, TaskError};

/// The number of samples of each split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Training samples.
    pub train: usize,
    /// Validation samples. May be 0.
    pub val: usize,
    /// Test samples. May be 0.
    pub test: usize,
}

impl Sizes {
    /// Samples of all splits, at most `usize::MAX`: the length of a progress bar.
    pub fn total(&self) -> usize {
        self.train
            .saturating_add(self.val)
            .saturating_add(self.test)
    }
}

/// Samples of one split.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Coordinates of the points, of shape [`Self::shape`], row-major.
    pub inputs: Vec<f32>,
    /// The shape of `inputs`: samples, points of a sample, dimension.
    pub shape: [usize; 3],
    /// The targets of each sample, of shape `[samples, target_len]`, row-major; standardised if the task is.
    pub targets: Vec<f32>,
    /// The number of targets of a sample: [`Task::target_len`].
    pub target_len: usize,
}

impl Split {
    /// The number of samples.
    pub fn len(&self) -> usize {
        self.shape[0]
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The metric of all tasks: the mean squared error of predictions, in units of [`Self::targets`].
    ///
    /// `predictions` has one value for each target, in order. Squares are summed in `f64`, in order. The mean of no sample is
    /// NaN.
    ///
    /// # Errors
    /// [`TaskError::PredictionCount`] if there are more or fewer predictions than targets.
    pub fn mean_squared_error(&self, predictions: &[f32]) -> Result<f64, TaskError> {
        mean_squared_error(predictions, &self.targets)
    }
}

/// The mean of squared differences, summed in `f64`, in order.
///
/// # Errors
/// [`TaskError::PredictionCount`].
pub(crate) fn mean_squared_error(predictions: &[f32], targets: &[f32]) -> Result<f64, TaskError> {
    if predictions.len() != targets.len() {
        return Err(TaskError::PredictionCount {
            expected: targets.len(),
            got: predictions.len(),
        });
    }
    let mut sum = 0.0;
    for (prediction, target) in predictions.iter().zip(targets) {
        sum += (f64::from(*prediction) - f64::from(*target)).powi(2);
    }
    Ok(sum / targets.len() as f64)
}

/// Training, validation and test data of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The task.
    pub task: Task,
    /// Samples to learn from. The statistics of standardised tasks come from these alone.
    pub train: Split,
    /// Samples to report while training.
    pub val: Split,
    /// Samples to report at the end.
    pub test: Split,
    /// Standard deviation by which the targets were divided; 1 if they were not.
    pub target_scale: f32,
    /// Mean that was subtracted from the targets before that; 0 if none was.
    pub target_shift: f32,
}

impl Dataset {
    /// The stored form of splits in order train, validation, test, whose targets are in their own units.
    pub(crate) fn unscaled(task: Task, splits: &[RawSplit; 3]) -> Self {
        let [train, val, test] = splits.each_ref().map(RawSplit::to_f32);
        Self {
            task,
            train,
            val,
            test,
            target_scale: 1.0,
            target_shift: 0.0,
        }
    }

    /// A target or prediction in its own units, from one as stored: `value * target_scale + target_shift`.
    pub fn in_target_units(&self, value: f32) -> f32 {
        value * self.target_scale + self.target_shift
    }

    /// A mean squared error of targets in their own units, from one of the stored targets: `error * target_scale^2`.
    ///
    /// [`ErrorUnits`](crate::published::ErrorUnits) says which of the two a published error is.
    pub fn error_in_target_units(&self, error: f64) -> f64 {
        error * f64::from(self.target_scale).powi(2)
    }
}
