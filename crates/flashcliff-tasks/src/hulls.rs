//! Convex hulls: the volume of the hull of 16 normal points in R^5.
//!
//! The generator follows CGENN's (arXiv 2305.11141): points are drawn from N(0, I_5) and targets are not scaled, so errors are in the units
//! of the volume squared.

use crate::hull_volume::{DIM, hull_volume};
use crate::sampling::normal_splits;
use crate::{Dataset, Observer, Sizes, Task, TaskError};

/// Points of one sample.
pub(crate) const POINTS: usize = 16;

pub(crate) fn generate(
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let task = Task::Hulls;
    let splits = normal_splits(task, sizes, 1, seed, observer, |split, sample, x| {
        // The width of a sample is a multiple of DIM, so nothing remains.
        let (points, _) = x.as_chunks::<DIM>();
        hull_volume(points).map_err(|source| TaskError::Hull {
            split,
            sample,
            seed,
            source,
        })
    })?;
    Ok(Dataset::unscaled(task, &splits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep_on;

    #[test]
    fn targets_are_the_volumes_of_the_stored_points() {
        let sizes = Sizes {
            train: 70,
            val: 3,
            test: 3,
        };
        let data = generate(sizes, 21, &keep_on).unwrap();
        for (x, y) in data.train.inputs.chunks_exact(80).zip(&data.train.targets) {
            let points: Vec<[f64; DIM]> = x
                .chunks_exact(DIM)
                .map(|p| std::array::from_fn(|i| f64::from(p[i])))
                .collect();
            let volume = hull_volume(&points).unwrap();
            // The points were rounded to f32 after the volume was taken.
            assert!(
                (volume - f64::from(*y)).abs() < 1e-5 * volume,
                "{volume} {y}"
            );
        }
    }
}
