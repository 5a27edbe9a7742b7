//! The error of equivariance of a network of bodies.

use std::array::from_fn;
use std::fmt;

use flashcliff_tasks::Motion;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::flow::{Bodies, Flow, Vector, position, velocity};
use crate::error::Error;

/// Motions of space of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Moved {
    /// Rotations, uniform among all.
    Rotations,
    /// Reflections, followed by rotations.
    Reflections,
    /// Translations as long as the samples are wide, in all directions.
    Translations,
}

impl Moved {
    pub(super) const ALL: [Self; 3] = [Self::Rotations, Self::Reflections, Self::Translations];
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rotations => "rotations",
            Self::Reflections => "reflections",
            Self::Translations => "translations",
        })
    }
}

/// How far a network is from commuting with motions of space, relative to how far it moves bodies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Deviation {
    /// The root of the mean square over all samples.
    pub(super) rms: f64,
    /// The largest of one sample.
    pub(super) largest: f64,
}

/// Moves each sample by a random motion of a kind, and compares the network after the motion with the network before
/// it.
pub(super) fn measure<const D: usize>(
    flow: &Flow,
    moved: Moved,
    seed: u64,
    motion: Motion,
    starts: &Bodies<D>,
) -> Result<Deviation, Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(moved as u64);
    let places = starts.positions();
    let width = width(motion.bodies, &places);
    let samples = places.chunks_exact(motion.bodies);
    let motions: Vec<Rigid<D>> = samples
        .map(|_| Rigid::draw(moved, width, &mut rng))
        .collect();
    let of_body = |i: usize| &motions[i / motion.bodies];
    let rows = (0..).zip(starts.rows());
    let turned: Vec<f64> = rows.flat_map(|(i, body)| of_body(i).body(body)).collect();
    let before = flow.positions(&turned)?;
    let plain = flow.positions(&starts.0)?;
    let behind = (0..).zip(&plain).map(|(i, &x)| of_body(i).point(x));
    let wrong: Vec<f64> = behind.zip(&before).map(|(a, &b)| square(a, b)).collect();
    let far = places.iter().zip(&plain).map(|(&from, &x)| square(from, x));
    Ok(Deviation::of(
        &wrong,
        &far.collect::<Vec<_>>(),
        motion.bodies,
    ))
}

impl Deviation {
    /// From the squares of errors and motions of bodies.
    fn of(wrong: &[f64], far: &[f64], bodies: usize) -> Self {
        let ratio = |(wrong, far): (&[f64], &[f64])| {
            (wrong.iter().sum::<f64>() / far.iter().sum::<f64>()).sqrt()
        };
        let samples = wrong.chunks_exact(bodies).zip(far.chunks_exact(bodies));
        Self {
            rms: ratio((wrong, far)),
            // `f64::max` would hide NaN.
            largest: samples
                .map(ratio)
                .fold(0.0, |a: f64, b| if a.is_nan() || b <= a { a } else { b }),
        }
    }
}

/// The mean distance of bodies from the centre of their sample, twice.
fn width<const D: usize>(bodies: usize, places: &[Vector<D>]) -> f64 {
    let distances = places.chunks_exact(bodies).flat_map(|sample| {
        let centre = from_fn(|axis| {
            let along = sample.iter().map(|place| place[axis]);
            along.sum::<f64>() / bodies as f64
        });
        sample
            .iter()
            .map(move |&place| square(place, centre).sqrt())
    });
    2.0 * distances.sum::<f64>() / places.len() as f64
}

/// A rotation or reflection, then a translation.
struct Rigid<const D: usize> {
    matrix: [Vector<D>; D],
    shift: Vector<D>,
}

impl<const D: usize> Rigid<D> {
    fn draw(moved: Moved, width: f64, rng: &mut ChaCha8Rng) -> Self {
        let identity = from_fn(|row| from_fn(|axis| f64::from(u8::from(row == axis))));
        let (matrix, shift) = match moved {
            Moved::Rotations => (orthogonal(1.0, rng), [0.0; D]),
            Moved::Reflections => (orthogonal(-1.0, rng), [0.0; D]),
            Moved::Translations => (identity, direction(rng).map(|x| width * x)),
        };
        Self { matrix, shift }
    }

    fn point(&self, x: Vector<D>) -> Vector<D> {
        let turned = self.vector(x);
        from_fn(|axis| turned[axis] + self.shift[axis])
    }

    fn vector(&self, v: Vector<D>) -> Vector<D> {
        self.matrix.map(|row| dot(row, v))
    }

    fn body(&self, body: &[f64]) -> Vec<f64> {
        let (x, v) = (self.point(position(body)), self.vector(velocity(body)));
        [&body[..1], &x, &v].concat()
    }
}

/// An orthogonal matrix of this determinant, uniform among all: each row has any direction at right
/// angles to the rows before it.
fn orthogonal<const D: usize>(sign: f64, rng: &mut ChaCha8Rng) -> [Vector<D>; D] {
    let mut rows = [[0.0; D]; D];
    for at in 0..D {
        rows[at] = loop {
            let mut own = direction(rng);
            // Twice, because what rounding leaves of the rows before counts in a short rest.
            for row in [&rows[..at]; 2].into_iter().flatten() {
                let along = dot(*row, own);
                own = from_fn(|axis| own[axis] - along * row[axis]);
            }
            let length = dot(own, own).sqrt();
            // Short ones would have few digits.
            if length > 0.1 {
                break own.map(|x| x / length);
            }
        };
    }
    if let (true, Some(last)) = (determinant(rows) * sign < 0.0, rows.last_mut()) {
        *last = last.map(|x| -x);
    }
    rows
}

/// The determinant of a matrix, by elimination with the largest pivots.
fn determinant<const D: usize>(mut rows: [Vector<D>; D]) -> f64 {
    let mut product = 1.0;
    for at in 0..D {
        let larger = |&a: &usize, &b: &usize| rows[a][at].abs().total_cmp(&rows[b][at].abs());
        let pivot = (at..D).max_by(larger).unwrap_or(at);
        if pivot != at {
            rows.swap(pivot, at);
            product = -product;
        }
        product *= rows[at][at];
        let own = rows[at];
        for row in &mut rows[at + 1..] {
            let factor = row[at] / own[at];
            *row = from_fn(|axis| row[axis] - factor * own[axis]);
        }
    }
    product
}

/// A vector of length 1, uniform on the sphere.
fn direction<const D: usize>(rng: &mut ChaCha8Rng) -> Vector<D> {
    loop {
        let v: Vector<D> = from_fn(|_| rng.random_range(-1.0..1.0));
        let length = dot(v, v).sqrt();
        if (0.1..1.0).contains(&length) {
            return v.map(|x| x / length);
        }
    }
}

fn dot<const D: usize>(a: Vector<D>, b: Vector<D>) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The square of a distance.
fn square<const D: usize>(a: Vector<D>, b: Vector<D>) -> f64 {
    let difference: Vector<D> = from_fn(|axis| a[axis] - b[axis]);
    dot(difference, difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_motions<const D: usize>() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (moved, orientation) in Moved::ALL.into_iter().zip([1.0, -1.0, 1.0]) {
            let motion = Rigid::<D>::draw(moved, 3.0, &mut rng);
            assert!((determinant(motion.matrix) - orientation).abs() < 1e-14);
            let body: Vec<f64> = (0..1 + 2 * D).map(|at| 2.0 - 0.3 * at as f64).collect();
            let turned = motion.body(&body);
            assert_eq!((turned.len(), turned[0]), (body.len(), 2.0));
            let far = |from: Vector<D>, body: &[f64]| square(position(body), from);
            assert!((far(motion.shift, &turned) - far([0.0; D], &body)).abs() < 1e-13);
            let speed = |body: &[f64]| square::<D>(velocity(body), [0.0; D]);
            assert!((speed(&turned) - speed(&body)).abs() < 1e-13);
            let moves = if moved == Moved::Translations {
                9.0
            } else {
                0.0
            };
            assert!((dot(motion.shift, motion.shift) - moves).abs() < 1e-13);
            let stays = moved == Moved::Translations;
            assert_eq!(turned[1 + D..] == body[1 + D..], stays);
        }
    }

    #[test]
    fn motions_keep_distances_and_have_their_orientation() {
        check_motions::<3>();
        check_motions::<5>();
    }

    #[test]
    fn determinants_are_those_of_known_matrices() {
        assert_eq!(determinant([[0.0, 2.0], [3.0, 5.0]]), -6.0);
        let other = [[2.0, 0.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0, 1.0]];
        assert!((determinant(other) - 0.0).abs() < 1e-14);
        let third = [[2.0, 0.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0, 4.0]];
        assert!((determinant(third) - 18.0).abs() < 1e-13);
    }

    /// Each entry of the matrix has mean 0 and mean square 1/D, and its square the variance 2 (D -
    /// 1) / (D^2 (D + 2)).
    fn check_uniform<const D: usize>() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let count = 4000;
        let drawn: Vec<[Vector<D>; D]> = (0..count).map(|_| orthogonal(1.0, &mut rng)).collect();
        for (row, axis) in (0..D).flat_map(|row| (0..D).map(move |axis| (row, axis))) {
            let entries = drawn.iter().map(|matrix| matrix[row][axis]);
            let sum: f64 = entries.clone().sum();
            let squares: f64 = entries.map(|x| x * x).sum();
            // Five standard errors.
            let (n, d) = (f64::from(count), D as f64);
            assert!((sum / n).abs() < 5.0 * (1.0 / d / n).sqrt());
            let variance = 2.0 * (d - 1.0) / (d * d * (d + 2.0));
            assert!((squares / n - 1.0 / d).abs() < 5.0 * (variance / n).sqrt());
        }
    }

    #[test]
    fn rotations_are_uniform() {
        check_uniform::<3>();
        check_uniform::<5>();
    }

    #[test]
    fn the_largest_is_of_a_sample_and_may_be_no_number() {
        let far = [1.0, 3.0, 2.0, 2.0];
        let deviation = Deviation::of(&[0.0, 1.0, 0.0, 0.0], &far, 2);
        assert_eq!(deviation.largest, 0.5);
        assert_eq!(deviation.rms, 0.125_f64.sqrt());
        assert!(
            Deviation::of(&[f64::NAN, 1.0, 0.5, 0.5], &far, 2)
                .largest
                .is_nan()
        );
    }
}
