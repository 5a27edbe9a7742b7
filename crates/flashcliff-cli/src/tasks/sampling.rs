//! Normal samples in parallel, the same for every number of threads.
//!
//! A split is cut into blocks of [`BLOCK`] samples. Each block draws from its own ChaCha8 stream, whose number is
//! `split << 48 | block`, so a sample depends on the seed and its position alone.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;

use super::{Progress, Sizes, Split, SplitName, TaskError};
use crate::interrupt;

/// The number of samples of one random stream, and of one unit of parallel work.
const BLOCK: usize = 64;

/// One split in f64: `inputs` are `[len, width]`, `targets` `[len]`.
pub(super) struct RawSplit {
    pub(super) inputs: Vec<f64>,
    pub(super) targets: Vec<f64>,
}

impl RawSplit {
    /// Rounds to the f32 that is stored.
    pub(super) fn to_f32(&self) -> Split {
        Split {
            inputs: self.inputs.iter().map(|&v| v as f32).collect(),
            targets: self.targets.iter().map(|&v| v as f32).collect(),
            len: self.targets.len(),
        }
    }
}

/// The three splits, in order train, validation, test.
///
/// Every sample has `width` coordinates from N(0, 1); `target(split, index, coordinates)` labels it.
///
/// # Errors
/// [`TaskError::TooFewSamples`] when the training set is smaller than `least_train`; [`TaskError::Stopped`] after Ctrl-C; otherwise the error of the first
/// sample, in the order of the data, that has one.
pub(super) fn normal_splits<F>(
    sizes: Sizes,
    least_train: usize,
    width: usize,
    seed: u64,
    progress: Progress<'_>,
    target: F,
) -> Result<[RawSplit; 3], TaskError>
where
    F: Fn(SplitName, usize, &[f64]) -> Result<f64, TaskError> + Sync,
{
    if sizes.train < least_train {
        return Err(TaskError::TooFewSamples {
            split: SplitName::Train,
            expected: least_train,
            got: sizes.train,
        });
    }
    let split = |name, len| normal_split(name, len, width, seed, progress, &target);
    Ok([
        split(SplitName::Train, sizes.train)?,
        split(SplitName::Validation, sizes.val)?,
        split(SplitName::Test, sizes.test)?,
    ])
}

fn normal_split<F>(
    name: SplitName,
    len: usize,
    width: usize,
    seed: u64,
    progress: Progress<'_>,
    target: &F,
) -> Result<RawSplit, TaskError>
where
    F: Fn(SplitName, usize, &[f64]) -> Result<f64, TaskError> + Sync,
{
    let mut inputs = vec![0.0; len * width];
    let mut targets = vec![0.0; len];
    let results: Vec<Result<(), TaskError>> = inputs
        .par_chunks_mut(BLOCK * width)
        .zip(targets.par_chunks_mut(BLOCK))
        .enumerate()
        .map(|(block, (inputs, targets))| {
            if interrupt::requested() {
                return Err(TaskError::Stopped);
            }
            let mut rng = stream(seed, name, block);
            for (i, (x, y)) in inputs
                .chunks_exact_mut(width)
                .zip(&mut *targets)
                .enumerate()
            {
                x.fill_with(|| StandardNormal.sample(&mut rng));
                *y = target(name, block * BLOCK + i, x)?;
            }
            progress(targets.len());
            Ok(())
        })
        .collect();
    // The results are collected first, so that the reported error is the first in the data, not the first in time.
    results.into_iter().collect::<Result<(), _>>()?;
    Ok(RawSplit { inputs, targets })
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
    use super::super::HullError;
    use super::*;

    #[test]
    fn samples_are_standard_normal() {
        let sizes = Sizes {
            train: 20_000,
            val: 0,
            test: 0,
        };
        let [train, _, _] = normal_splits(sizes, 1, 5, 11, &|_| {}, |_, _, _| Ok(0.0)).unwrap();
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
        let error = normal_splits(sizes, 1, 2, 4, &|_| {}, fail).err().unwrap();
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
