//! O(5) regression: an invariant function of two vectors.
//!
//! ```text
//! y = sin|x1| - |x2|^3 / 2 + x1 . x2 / (|x1| |x2|),   x1, x2 ~ N(0, I_5)
//! ```
//!
//! The data follow EMLP (arXiv 2104.09459) and CGENN (arXiv 2305.11141), with statistics of the training set alone. Each vector is divided
//! by its root mean square component; no mean is subtracted, which would break the symmetry. Targets are standardised by their mean and
//! population standard deviation.

use crate::sampling::{RawSplit, normal_splits};
use crate::{Dataset, Observer, Sizes, Task, TaskError};

/// Dimension of the vectors.
pub(crate) const DIM: usize = 5;
/// Vectors of one sample.
pub(crate) const POINTS: usize = 2;

pub(crate) fn generate(
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let task = Task::Regression;
    // One sample has no standard deviation.
    let mut splits = normal_splits(task, sizes, 2, seed, observer, |_, _, x| {
        let (x1, x2) = x.split_at(DIM);
        Ok(invariant(x1, x2))
    })?;
    let statistics = Statistics::of(&splits[0]);
    for split in &mut splits {
        statistics.apply(split);
    }
    Ok(Dataset {
        target_scale: statistics.std as f32,
        target_shift: statistics.mean as f32,
        ..Dataset::unscaled(task, &splits)
    })
}

fn invariant(x1: &[f64], x2: &[f64]) -> f64 {
    let dot = |u: &[f64], v: &[f64]| u.iter().zip(v).map(|(a, b)| a * b).sum::<f64>();
    let (n1, n2) = (dot(x1, x1).sqrt(), dot(x2, x2).sqrt());
    n1.sin() - 0.5 * n2.powi(3) + dot(x1, x2) / (n1 * n2)
}

struct Statistics {
    /// Root mean square component of each vector.
    rms: [f64; POINTS],
    mean: f64,
    std: f64,
}

impl Statistics {
    fn of(split: &RawSplit) -> Self {
        let len = split.targets.len() as f64;
        let rms = std::array::from_fn(|point| {
            let components = split.inputs.chunks_exact(DIM).skip(point).step_by(POINTS);
            let squares: f64 = components.flatten().map(|v| v * v).sum();
            (squares / (len * DIM as f64)).sqrt()
        });
        let mean = split.targets.iter().sum::<f64>() / len;
        let variance = split
            .targets
            .iter()
            .map(|y| (y - mean).powi(2))
            .sum::<f64>()
            / len;
        Self {
            rms,
            mean,
            std: variance.sqrt(),
        }
    }

    fn apply(&self, split: &mut RawSplit) {
        for (i, vector) in split.inputs.chunks_exact_mut(DIM).enumerate() {
            vector.iter_mut().for_each(|v| *v /= self.rms[i % POINTS]);
        }
        for y in &mut split.targets {
            *y = (*y - self.mean) / self.std;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep_on;

    #[test]
    fn the_function_at_known_points() {
        let e = |i: usize, length: f64| -> Vec<f64> {
            (0..DIM)
                .map(|k| if k == i { length } else { 0.0 })
                .collect()
        };
        assert_eq!(invariant(&e(0, 1.0), &e(1, 2.0)), 1f64.sin() - 4.0);
        assert_eq!(invariant(&e(2, 3.0), &e(2, 2.0)), 3f64.sin() - 4.0 + 1.0);
        assert_eq!(invariant(&e(2, 3.0), &e(2, -2.0)), 3f64.sin() - 4.0 - 1.0);
    }

    fn moments(values: impl Iterator<Item = f32>) -> (f64, f64) {
        let values: Vec<f64> = values.map(f64::from).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (
            mean,
            values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n,
        )
    }

    #[test]
    fn the_training_set_is_standardised_and_the_others_by_its_statistics() {
        let sizes = Sizes {
            train: 300,
            val: 300,
            test: 10,
        };
        let data = generate(sizes, 5, &keep_on).unwrap();
        let (mean, variance) = moments(data.train.targets.iter().copied());
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-6);
        // Another draw has another mean. This mean would vanish if the draw were standardised by itself.
        assert!(moments(data.val.targets.iter().copied()).0.abs() > 1e-4);
        for point in 0..POINTS {
            let squares: f64 = data
                .train
                .inputs
                .chunks_exact(DIM)
                .skip(point)
                .step_by(POINTS)
                .flatten()
                .map(|v| f64::from(*v).powi(2))
                .sum();
            assert!((squares / (300.0 * DIM as f64) - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn scale_and_shift_restore_the_target() {
        let sizes = Sizes {
            train: 50,
            val: 20,
            test: 20,
        };
        let seed = 6;
        let data = generate(sizes, seed, &keep_on).unwrap();
        let [_, raw, _] = normal_splits(Task::Regression, sizes, 2, seed, &keep_on, |_, _, x| {
            Ok(invariant(&x[..DIM], &x[DIM..]))
        })
        .unwrap();
        for (stored, y) in data.val.targets.iter().zip(&raw.targets) {
            let restored = f64::from(data.in_target_units(*stored));
            assert!(
                (restored - y).abs() < 1e-5 * (1.0 + y.abs()),
                "{restored} {y}"
            );
        }
    }

    #[test]
    fn one_sample_has_no_deviation() {
        let sizes = Sizes {
            train: 1,
            val: 1,
            test: 1,
        };
        assert!(matches!(
            generate(sizes, 0, &keep_on),
            Err(TaskError::TooFewSamples {
                expected: 2,
                got: 1,
                ..
            })
        ));
    }
}
