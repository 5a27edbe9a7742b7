//! Signed volumes: a tenth of the determinant of three normal vectors in R^3.
//!
//! The generator follows CGENN's (arXiv 2305.11141): X ~ N(0, 1)^(3 x 3), y = det(X) / 10. The target changes sign under reflections, so it
//! is a pseudoscalar of Cl(3,0).

use crate::sampling::normal_splits;
use crate::{Dataset, Observer, Sizes, Task, TaskError};

/// The number of vectors of one sample, and their dimension.
pub(crate) const DIM: usize = 3;

pub(crate) fn generate(
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let task = Task::Volumes;
    let splits = normal_splits(task, sizes, 1, seed, observer, |_, _, x| {
        Ok(signed_volume(x) / 10.0)
    })?;
    Ok(Dataset::unscaled(task, &splits))
}

/// Determinant of the rows of `x`.
fn signed_volume(x: &[f64]) -> f64 {
    let minor = |j: usize, k: usize| x[3 + j] * x[6 + k] - x[3 + k] * x[6 + j];
    x[0] * minor(1, 2) - x[1] * minor(0, 2) + x[2] * minor(0, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep_on;

    #[test]
    fn unit_vectors_have_volume_one_and_odd_orders_minus_one() {
        let unit = |i: usize| std::array::from_fn::<f64, 3, _>(|k| if k == i { 1.0 } else { 0.0 });
        for (order, sign) in [
            ([0, 1, 2], 1.0),
            ([1, 2, 0], 1.0),
            ([2, 0, 1], 1.0),
            ([1, 0, 2], -1.0),
            ([0, 2, 1], -1.0),
            ([2, 1, 0], -1.0),
        ] {
            let rows: Vec<f64> = order.iter().flat_map(|&i| unit(i)).collect();
            assert_eq!(signed_volume(&rows), sign, "{order:?}");
        }
    }

    #[test]
    fn targets_belong_to_the_inputs_and_flip_under_reflection() {
        let sizes = Sizes {
            train: 100,
            val: 1,
            test: 1,
        };
        let data = generate(sizes, 2, &keep_on).unwrap();
        for (x, y) in data.train.inputs.chunks_exact(9).zip(&data.train.targets) {
            let mut x: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            let volume = signed_volume(&x) / 10.0;
            assert!((volume - f64::from(*y)).abs() < 1e-5, "{volume} {y}");
            x.iter_mut().step_by(3).for_each(|v| *v = -*v);
            assert_eq!(signed_volume(&x) / 10.0, -volume);
        }
    }
}
