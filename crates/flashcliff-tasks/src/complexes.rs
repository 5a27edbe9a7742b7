//! Convex hulls with their simplicial complexes: the volume of the hull of 8 normal points in R^5, from the vertices,
//! edges and triangles of its facets.
//!
//! The generator follows CSMPN's (arXiv 2402.10011): points are drawn from N(0, I_5), all of them are vertices of the
//! complex, also those inside of the hull, and targets are not scaled. A sample has a row for each vertex, edge and
//! triangle of 8 points, whether it is in the complex or not, so all samples have one shape.

use rand_distr::{Distribution, StandardNormal};

use crate::hull_volume::{DIM, hull};
use crate::sampling::splits;
use crate::{Dataset, Observer, Sizes, Task, TaskError};

/// Points of a hull.
const VERTICES: usize = 8;
/// Vertices, edges and triangles of them.
pub(crate) const SIMPLICES: usize = 8 + 28 + 56;
/// Numbers of a simplex: the position of a vertex, zeros for others; whether it is in the complex; 1 divided by the
/// number of its messages, if there are any; 1 divided by the number of simplices, if it is one of them; 1 at its
/// dimension.
pub(crate) const ROW: usize = DIM + 3 + DIMENSIONS;
const DIMENSIONS: usize = 3;

pub(crate) fn generate(
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let (task, simplices) = (Task::Complexes, simplices());
    let made = splits(
        task,
        sizes,
        1,
        seed,
        observer,
        |(split, sample), rng, x, y| {
            let points: [[f64; DIM]; VERTICES] =
                std::array::from_fn(|_| std::array::from_fn(|_| StandardNormal.sample(rng)));
            let found = hull(&points).map_err(|source| TaskError::Hull {
                split,
                sample,
                seed,
                source,
            })?;
            y[0] = found.volume;
            describe(&points, &found.facets, &simplices, x);
            Ok(())
        },
    )?;
    Ok(Dataset::unscaled(task, &made))
}

/// The corners of all simplices: vertices, edges, triangles, each in the order of their corners.
fn simplices() -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = (0..VERTICES).map(|own| vec![own]).collect();
    for a in 0..VERTICES {
        found.extend((a + 1..VERTICES).map(|b| vec![a, b]));
    }
    for a in 0..VERTICES {
        for b in a + 1..VERTICES {
            found.extend((b + 1..VERTICES).map(|c| vec![a, b, c]));
        }
    }
    found
}

/// Writes the rows of a sample.
fn describe(
    points: &[[f64; DIM]; VERTICES],
    facets: &[[usize; DIM]],
    simplices: &[Vec<usize>],
    rows: &mut [f64],
) {
    let is_within = |own: &[usize], all: &[usize]| own.iter().all(|v| all.contains(v));
    let is_there = |own: &Vec<usize>| {
        let mut all = facets.iter();
        own.len() == 1 || all.any(|facet| is_within(own, facet))
    };
    let there: Vec<bool> = simplices.iter().map(is_there).collect();
    let count = there.iter().filter(|own| **own).count() as f64;
    let all = simplices.iter().zip(&there);
    for ((corners, &is_there), row) in all.zip(rows.chunks_exact_mut(ROW)) {
        let of_size = |size: usize| {
            let all = simplices.iter().zip(&there);
            all.filter(move |(own, there)| **there && own.len() == size)
                .map(|own| own.0)
        };
        // Each simplex above brings a message itself, and one from each of its other faces.
        let above = of_size(corners.len() + 1).filter(|own| is_within(corners, own));
        let messages = match corners[..] {
            // All other vertices are neighbours, larger ones at the ends of edges once more.
            [vertex] => above.fold(VERTICES - 1, |sum, own| {
                sum + 1 + usize::from(own[0] == vertex)
            }),
            [_, _] => 2 + 3 * above.count(),
            _ => 3,
        };
        row.fill(0.0);
        if let [vertex] = corners[..] {
            row[..DIM].copy_from_slice(&points[vertex]);
        }
        if is_there {
            row[DIM..DIM + 3].copy_from_slice(&[1.0, 1.0 / messages as f64, 1.0 / count]);
        }
        row[DIM + 3 + corners.len() - 1] = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hull_volume::hull_volume;
    use crate::keep_on;

    const SIZES: Sizes = Sizes {
        train: 70,
        val: 3,
        test: 3,
    };

    #[test]
    fn targets_are_the_volumes_of_the_stored_points() {
        let data = generate(SIZES, 21, &keep_on).unwrap();
        for (x, y) in data
            .train
            .inputs
            .chunks_exact(SIMPLICES * ROW)
            .zip(&data.train.targets)
        {
            let vertices = x.chunks_exact(ROW).take(VERTICES);
            let points: Vec<[f64; DIM]> = vertices
                .map(|own| std::array::from_fn(|i| f64::from(own[i])))
                .collect();
            let volume = hull_volume(&points).unwrap();
            // The points were rounded to f32 after the volume was taken.
            assert!(
                (volume - f64::from(*y)).abs() < 1e-5 * volume,
                "{volume} {y}"
            );
        }
    }

    /// A simplex of six points with two points inside: all of its edges and triangles.
    #[test]
    fn rows_of_a_simplex_with_points_inside() {
        let mut points = [[0.0; DIM]; VERTICES];
        for (at, point) in points.iter_mut().enumerate().take(DIM) {
            point[at] = 1.0;
        }
        points[5] = [-1.0; DIM];
        points[6] = [0.01, 0.02, 0.03, 0.04, 0.05];
        points[7] = [-0.05, -0.04, -0.03, -0.02, -0.01];
        let facets = hull(&points).unwrap().facets;
        assert_eq!(facets.len(), 6);
        let simplices = simplices();
        assert_eq!(simplices.len(), SIMPLICES);
        let mut rows = vec![9.0; SIMPLICES * ROW];
        describe(&points, &facets, &simplices, &mut rows);
        let row = |corners: &[usize]| {
            let at = simplices.iter().position(|own| own == corners).unwrap();
            &rows[at * ROW..][..ROW]
        };
        let count = 1.0 / f64::from(8 + 15 + 20);
        // From seven vertices, five edges, and once more from larger vertices at the ends of edges.
        assert_eq!(row(&[1])[..5], [0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(
            row(&[1])[5..],
            [1.0, 1.0 / f64::from(7 + 5 + 4), count, 1.0, 0.0, 0.0]
        );
        assert_eq!(row(&[6])[5..], [1.0, 1.0 / 7.0, count, 1.0, 0.0, 0.0]);
        // From two vertices, four triangles and their other edges.
        assert_eq!(
            row(&[1, 4]),
            [
                0.0,
                0.0,
                0.0,
                0.0,
                0.0,
                1.0,
                1.0 / 14.0,
                count,
                0.0,
                1.0,
                0.0
            ]
        );
        assert_eq!(row(&[1, 6])[5..], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(row(&[0, 2, 5])[5..], [1.0, 1.0 / 3.0, count, 0.0, 0.0, 1.0]);
        assert_eq!(row(&[0, 2, 7])[5..], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }
}
