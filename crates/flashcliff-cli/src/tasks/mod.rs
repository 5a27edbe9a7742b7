//! The published tasks: data made exactly as their papers make it, and the errors they report.
//!
//! | task | points | target | source |
//! |---|---|---|---|
//! | [`Task::Hulls`] | 16 in R^5, N(0, I) | volume of the convex hull | CGENN, arXiv 2305.11141 |
//! | [`Task::Regression`] | 2 in R^5, N(0, I) | an O(5)-invariant function | EMLP, arXiv 2104.09459; CGENN |
//! | [`Task::Volumes`] | 3 in R^3, N(0, I) | signed volume det / 10 | CGENN |
//!
//! Points are drawn and targets computed in f64, and stored as f32. Nothing here knows about models.
//!
//! Determinism: the data depend on the seed and the sample's position only, never on the number of threads.
//! A smaller training set is a prefix of a larger one, and the validation and test sets do not change with it (before standardisation). The
//! published programs have this property because they read the first rows of one file.

mod error;
mod hull_volume;
mod hulls;
pub(crate) mod published;
mod regression;
mod sampling;
mod volumes;

pub(crate) use error::{HullError, SplitName, TaskError};

/// A function that is called with the number of samples finished since its last call, from any thread.
pub(crate) type Progress<'a> = &'a (dyn Fn(usize) + Sync);

/// Samples of one split.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Split {
    /// `[len, points, dim]`, row-major.
    pub(crate) inputs: Vec<f32>,
    /// `[len]`, standardised when the task is.
    pub(crate) targets: Vec<f32>,
    /// Number of samples.
    pub(crate) len: usize,
}

/// Training, validation and test data of a task.
///
/// The target in its own units is `target * target_scale + target_shift`, so a mean squared error becomes `mse * target_scale^2`.
/// [`published::ErrorUnits`] says which of the two units a published error has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dataset {
    /// Samples to learn from; the statistics of standardised tasks come from these alone.
    pub(crate) train: Split,
    /// Samples to report while training.
    pub(crate) val: Split,
    /// Samples to report at the end.
    pub(crate) test: Split,
    /// Points of one sample.
    pub(crate) points: usize,
    /// Dimension of a point.
    pub(crate) dim: usize,
    /// Standard deviation the targets were divided by; 1 when they were not.
    pub(crate) target_scale: f32,
    /// Mean that was subtracted from the targets; 0 when none was.
    pub(crate) target_shift: f32,
}

/// How many samples each split has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Training samples.
    pub(crate) train: usize,
    /// Validation samples.
    pub(crate) val: usize,
    /// Test samples.
    pub(crate) test: usize,
}

impl Sizes {
    /// Samples of all splits, for a progress bar.
    pub(crate) fn total(&self) -> usize {
        self.train + self.val + self.test
    }
}

/// A task with a published generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Volume of the convex hull of 16 points in R^5, O(5)-invariant.
    Hulls,
    /// The O(5)-invariant function of two vectors of EMLP.
    Regression,
    /// Signed volume of three vectors in R^3, a pseudoscalar under O(3).
    Volumes,
}

impl Task {
    /// The name used on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hulls => "hulls",
            Self::Regression => "regression",
            Self::Volumes => "volumes",
        }
    }

    /// Makes the data of a seed, in parallel on rayon's current pool.
    ///
    /// # Errors
    /// [`TaskError::TooFewSamples`] when a training set is empty (or has fewer than two samples where statistics are
    /// taken from it), [`TaskError::Hull`] when a sample's hull cannot be computed, [`TaskError::Stopped`] after Ctrl-C.
    pub(crate) fn generate(
        self,
        samples: Sizes,
        seed: u64,
        progress: Progress<'_>,
    ) -> Result<Dataset, TaskError> {
        match self {
            Self::Hulls => hulls::generate(samples, seed, progress),
            Self::Regression => regression::generate(samples, seed, progress),
            Self::Volumes => volumes::generate(samples, seed, progress),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Every task.
    pub(super) const ALL: [Task; 3] = [Task::Hulls, Task::Regression, Task::Volumes];

    /// These sizes are not multiples of the sampling block, so that partial blocks are covered.
    const SIZES: Sizes = Sizes {
        train: 131,
        val: 70,
        test: 5,
    };

    fn with_threads(threads: usize, task: Task, seed: u64) -> Dataset {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(|| task.generate(SIZES, seed, &|_| {}).unwrap())
    }

    #[test]
    fn thread_count_does_not_change_the_data() {
        for task in ALL {
            assert_eq!(with_threads(1, task, 7), with_threads(2, task, 7));
        }
    }

    #[test]
    fn seeds_and_splits_differ() {
        for task in ALL {
            let (a, b) = (with_threads(2, task, 7), with_threads(2, task, 8));
            assert_ne!(a.train.inputs, b.train.inputs);
            assert_ne!(
                a.train.inputs[..a.val.inputs.len()],
                a.val.inputs,
                "{task:?}"
            );
            assert_ne!(
                a.val.inputs[..a.test.inputs.len()],
                a.test.inputs,
                "{task:?}"
            );
        }
    }

    #[test]
    fn shapes_are_as_documented() {
        for (task, points, dim) in [
            (Task::Hulls, 16, 5),
            (Task::Regression, 2, 5),
            (Task::Volumes, 3, 3),
        ] {
            let data = with_threads(2, task, 1);
            assert_eq!((data.points, data.dim), (points, dim));
            for (split, len) in [(&data.train, 131), (&data.val, 70), (&data.test, 5)] {
                assert_eq!(split.len, len);
                assert_eq!(split.targets.len(), len);
                assert_eq!(split.inputs.len(), len * points * dim);
                assert!(
                    split
                        .inputs
                        .iter()
                        .chain(&split.targets)
                        .all(|v| v.is_finite())
                );
            }
        }
    }

    #[test]
    fn small_training_set_is_a_prefix() {
        let small = Sizes {
            train: 100,
            ..SIZES
        };
        let a = Task::Hulls.generate(small, 3, &|_| {}).unwrap();
        let b = Task::Hulls.generate(SIZES, 3, &|_| {}).unwrap();
        assert_eq!(a.train.inputs, b.train.inputs[..a.train.inputs.len()]);
        assert_eq!(a.train.targets, b.train.targets[..100]);
        assert_eq!(a.val, b.val);
    }

    #[test]
    fn progress_counts_every_sample_once() {
        for task in ALL {
            let done = AtomicUsize::new(0);
            task.generate(SIZES, 0, &|n| {
                done.fetch_add(n, Ordering::Relaxed);
            })
            .unwrap();
            assert_eq!(done.into_inner(), SIZES.total());
        }
    }

    #[test]
    fn empty_training_set_is_an_error() {
        for task in ALL {
            let error = task
                .generate(Sizes { train: 0, ..SIZES }, 0, &|_| {})
                .unwrap_err();
            assert!(matches!(
                error,
                TaskError::TooFewSamples {
                    split: SplitName::Train,
                    got: 0,
                    ..
                }
            ));
        }
    }
}
