//! Samples in parallel, the same for every number of threads.
//!
//! A split is cut into blocks of [`BLOCK`] samples. Each block draws from its own ChaCha8 stream, whose number is
//! `split << 48 | block`, so a sample depends on the seed and its position alone.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use crate::{Observer, Sizes, Split, SplitName, Task, TaskError};

/// The number of samples of one random stream, and of one unit of parallel work.
const BLOCK: usize = 64;

/// The numbers of a sample: `points` rows of `dim`, and `target_len` targets.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) points: usize,
    pub(crate) dim: usize,
    pub(crate) target_len: usize,
}

impl From<Task> for Shape {
    fn from(task: Task) -> Self {
        Self {
            points: task.points(),
            dim: task.dim(),
            target_len: task.target_len(),
        }
    }
}

/// One split in f64: `inputs` are `[len, points, dim]`, `targets` `[len, target_len]`.
pub(crate) struct RawSplit {
    name: SplitName,
    len: usize,
    points: usize,
    dim: usize,
    target_len: usize,
    pub(crate) inputs: Vec<f64>,
    pub(crate) targets: Vec<f64>,
}

impl RawSplit {
    /// A split of zeros.
    ///
    /// # Errors
    /// [`TaskError::OutOfMemory`].
    fn new(name: SplitName, len: usize, shape: Shape) -> Result<Self, TaskError> {
        let Shape {
            points,
            dim,
            target_len,
        } = shape;
        let width = points * dim;
        let zeros = |len: Option<usize>| {
            let len = len?;
            let mut values = Vec::new();
            values.try_reserve_exact(len).ok()?;
            values.resize(len, 0.0);
            Some(values)
        };
        let (inputs, targets) = zeros(len.checked_mul(width))
            .zip(zeros(len.checked_mul(target_len)))
            .ok_or(TaskError::OutOfMemory {
                split: name,
                samples: len,
                bytes: len as u128 * (width + target_len) as u128 * 8,
            })?;
        Ok(Self {
            name,
            len,
            points,
            dim,
            target_len,
            inputs,
            targets,
        })
    }

    /// Rounds to the f32 that is stored.
    pub(crate) fn to_f32(&self) -> Split {
        Split {
            inputs: self.inputs.iter().map(|&v| v as f32).collect(),
            shape: [self.len, self.points, self.dim],
            targets: self.targets.iter().map(|&v| v as f32).collect(),
            target_len: self.target_len,
        }
    }
}

/// The three splits of a task of normal points, in order train, validation, test.
///
/// Every coordinate is from N(0, 1); `target(split, index, coordinates)` labels a sample.
pub(crate) fn normal_splits<F>(
    task: Task,
    sizes: Sizes,
    least_train: usize,
    seed: u64,
    observer: Observer<'_>,
    target: F,
) -> Result<[RawSplit; 3], TaskError>
where
    F: Fn(SplitName, usize, &[f64]) -> Result<f64, TaskError> + Sync,
{
    splits(
        task,
        sizes,
        least_train,
        seed,
        observer,
        |place, rng, x, y| {
            x.fill_with(|| StandardNormal.sample(rng));
            y[0] = target(place.0, place.1, x)?;
            Ok(())
        },
    )
}

/// The three splits of a task or a shape, in order train, validation, test.
///
/// `draw(place, rng, inputs, targets)` makes a sample from the stream of its block. The place is the split and the position in it.
///
/// # Errors
/// [`TaskError::TooFewSamples`] when the training set is smaller than `least_train`; [`TaskError::OutOfMemory`];
/// [`TaskError::Stopped`] after the observer's break; otherwise the error of the first sample, in the order of the data, that
/// has one.
pub(crate) fn splits<F>(
    shape: impl Into<Shape>,
    sizes: Sizes,
    least_train: usize,
    seed: u64,
    observer: Observer<'_>,
    draw: F,
) -> Result<[RawSplit; 3], TaskError>
where
    F: Draw,
{
    if sizes.train < least_train {
        return Err(TaskError::TooFewSamples {
            split: SplitName::Train,
            expected: least_train,
            got: sizes.train,
        });
    }
    let shape = shape.into();
    // All memory is asked for before any work is done.
    let mut splits = [
        RawSplit::new(SplitName::Train, sizes.train, shape)?,
        RawSplit::new(SplitName::Validation, sizes.val, shape)?,
        RawSplit::new(SplitName::Test, sizes.test, shape)?,
    ];
    for split in &mut splits {
        fill(split, seed, observer, &draw)?;
    }
    Ok(splits)
}

/// A function that makes a sample: see [`splits`].
pub(crate) trait Draw:
    Fn((SplitName, usize), &mut ChaCha8Rng, &mut [f64], &mut [f64]) -> Result<(), TaskError> + Sync
{
}

impl<F> Draw for F where
    F: Fn((SplitName, usize), &mut ChaCha8Rng, &mut [f64], &mut [f64]) -> Result<(), TaskError>
        + Sync
{
}

fn fill(
    split: &mut RawSplit,
    seed: u64,
    observer: Observer<'_>,
    draw: &impl Draw,
) -> Result<(), TaskError> {
    let (name, width, target_len) = (split.name, split.points * split.dim, split.target_len);
    let stopped = AtomicBool::new(false);
    let results: Vec<Result<(), TaskError>> = split
        .inputs
        .par_chunks_mut(BLOCK * width)
        .zip(split.targets.par_chunks_mut(BLOCK * target_len))
        .enumerate()
        .map(|(block, (inputs, targets))| {
            if stopped.load(Ordering::Relaxed) {
                return Err(TaskError::Stopped);
            }
            let mut rng = stream(seed, name, block);
            for (i, (x, y)) in inputs
                .chunks_exact_mut(width)
                .zip(targets.chunks_exact_mut(target_len))
                .enumerate()
            {
                draw((name, block * BLOCK + i), &mut rng, x, y)?;
            }
            if observer(targets.len() / target_len).is_break() {
                stopped.store(true, Ordering::Relaxed);
                return Err(TaskError::Stopped);
            }
            Ok(())
        })
        .collect();
    // The results are collected first, so that the reported error is the first in the data, not the first in time.
    results.into_iter().collect()
}

fn stream(seed: u64, name: SplitName, block: usize) -> ChaCha8Rng {
    let split = match name {
        SplitName::Train => 0u64,
        SplitName::Validation => 1,
        SplitName::Test => 2,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(split << 48 | block as u64);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HullError, keep_on};

    #[test]
    fn samples_are_standard_normal() {
        let sizes = Sizes {
            train: 20_000,
            val: 0,
            test: 0,
        };
        let [train, _, _] =
            normal_splits(Task::Volumes, sizes, 1, 11, &keep_on, |_, _, _| Ok(0.0)).unwrap();
        let n = train.inputs.len() as f64;
        let moment = |p| train.inputs.iter().map(|v| v.powi(p)).sum::<f64>() / n;
        // Five standard errors: sqrt(var(x^p) / n) with var 1, 2, 15, 96.
        for (power, expected, variance) in
            [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
        {
            let limit = 5.0 * f64::sqrt(variance / n);
            assert!((moment(power) - expected).abs() < limit, "moment {power}");
        }
    }

    #[test]
    fn the_first_failing_sample_is_reported() {
        let sizes = Sizes {
            train: 1_000,
            val: 0,
            test: 0,
        };
        let fail = |split, sample, _: &[f64]| {
            if sample % 300 == 299 {
                Err(TaskError::Hull {
                    split,
                    sample,
                    seed: 4,
                    source: HullError::TooFewPoints { got: 2 },
                })
            } else {
                Ok(0.0)
            }
        };
        let error = normal_splits(Task::Volumes, sizes, 1, 4, &keep_on, fail)
            .err()
            .unwrap();
        assert!(
            matches!(error, TaskError::Hull { sample: 299, .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("sample 299 of the training set (seed 4)")
        );
    }
}
