//! The error of equivariance of a network of bodies.

use std::array::from_fn;
use std::fmt;

use flashcliff_tasks::{Body, Motion};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::flow::{Flow, Vector, position};
use crate::error::Error;

/// Motions of space of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Moved {
    /// Rotations, uniform among all.
    Rotations,
    /// Reflections at planes, followed by rotations.
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

/// Moves each sample by a random motion of a kind, and compares the network behind the motion with the network before it.
///
/// # Errors
/// The errors of candle.
pub(super) fn measure(
    flow: &Flow,
    moved: Moved,
    seed: u64,
    motion: Motion,
    starts: &[Body],
) -> Result<Deviation, Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(moved as u64);
    let width = width(motion.bodies, starts);
    let samples = starts.chunks_exact(motion.bodies);
    let motions: Vec<Rigid> = samples
        .map(|_| Rigid::draw(moved, width, &mut rng))
        .collect();
    let of_body = |i: usize| &motions[i / motion.bodies];
    let turned: Vec<Body> = (0..)
        .zip(starts)
        .map(|(i, body)| of_body(i).body(body))
        .collect();
    let before = flow.positions(&turned)?;
    let plain = flow.positions(starts)?;
    let behind = (0..).zip(&plain).map(|(i, &x)| of_body(i).point(x));
    let wrong: Vec<f64> = behind.zip(&before).map(|(a, &b)| square(a, b)).collect();
    let far = starts
        .iter()
        .zip(&plain)
        .map(|(body, &x)| square(position(body), x));
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
            // `f64::max` would hide what is no number.
            largest: samples
                .map(ratio)
                .fold(0.0, |a: f64, b| if a.is_nan() || b <= a { a } else { b }),
        }
    }
}

/// The mean distance of bodies from the centre of their sample, twice.
fn width(bodies: usize, starts: &[Body]) -> f64 {
    let distances = starts.chunks_exact(bodies).flat_map(|sample| {
        let centre = from_fn(|axis| {
            let along = sample.iter().map(|body| position(body)[axis]);
            along.sum::<f64>() / bodies as f64
        });
        sample
            .iter()
            .map(move |body| square(position(body), centre).sqrt())
    });
    2.0 * distances.sum::<f64>() / starts.len() as f64
}

/// A rotation or reflection, then a translation.
struct Rigid {
    matrix: [Vector; 3],
    shift: Vector,
}

impl Rigid {
    fn draw(moved: Moved, width: f64, rng: &mut ChaCha8Rng) -> Self {
        let identity = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let (matrix, shift) = match moved {
            Moved::Rotations => (orthogonal(1.0, rng), [0.0; 3]),
            Moved::Reflections => (orthogonal(-1.0, rng), [0.0; 3]),
            Moved::Translations => (identity, direction(rng).map(|x| width * x)),
        };
        Self { matrix, shift }
    }

    fn point(&self, x: Vector) -> Vector {
        let turned = self.vector(x);
        from_fn(|axis| turned[axis] + self.shift[axis])
    }

    fn vector(&self, v: Vector) -> Vector {
        self.matrix.map(|row| dot(row, v))
    }

    fn body(&self, body: &Body) -> Body {
        let [number, .., a, b, c] = *body;
        let ([x, y, z], [u, v, w]) = (self.point(position(body)), self.vector([a, b, c]));
        [number, x, y, z, u, v, w]
    }
}

/// An orthogonal matrix of this determinant, uniform among all: the first row has any direction, the second any at a right angle to it.
fn orthogonal(determinant: f64, rng: &mut ChaCha8Rng) -> [Vector; 3] {
    let first = direction(rng);
    let second = loop {
        let other = direction(rng);
        let along = dot(first, other);
        let rest: Vector = from_fn(|axis| other[axis] - along * first[axis]);
        let length = dot(rest, rest).sqrt();
        // Short ones would have few digits.
        if length > 0.1 {
            break rest.map(|x| x / length);
        }
    };
    let third = cross(first, second).map(|x| determinant * x);
    [first, second, third]
}

/// A vector of length 1, uniform on the sphere.
fn direction(rng: &mut ChaCha8Rng) -> Vector {
    loop {
        let v: Vector = from_fn(|_| rng.random_range(-1.0..1.0));
        let length = dot(v, v).sqrt();
        if (0.1..1.0).contains(&length) {
            return v.map(|x| x / length);
        }
    }
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    let minor = |i: usize, j: usize| a[i] * b[j] - a[j] * b[i];
    [minor(1, 2), minor(2, 0), minor(0, 1)]
}

/// The square of a distance.
fn square(a: Vector, b: Vector) -> f64 {
    let difference = from_fn(|axis| a[axis] - b[axis]);
    dot(difference, difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn motions_keep_distances_and_have_their_orientation() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (moved, orientation) in Moved::ALL.into_iter().zip([1.0, -1.0, 1.0]) {
            let motion = Rigid::draw(moved, 3.0, &mut rng);
            let [a, b, c] = motion.matrix;
            assert!((dot(cross(a, b), c) - orientation).abs() < 1e-14);
            let body = [2.0, 0.3, -1.0, 0.7, 1.0, 2.0, 3.0];
            let turned = motion.body(&body);
            assert_eq!(turned[0], 2.0);
            let shift = motion.shift;
            assert!((square(position(&turned), shift) - 1.58).abs() < 1e-13);
            let speed = [turned[4], turned[5], turned[6]];
            assert!((dot(speed, speed) - 14.0).abs() < 1e-13);
            let moves = if moved == Moved::Translations {
                9.0
            } else {
                0.0
            };
            assert!((dot(shift, shift) - moves).abs() < 1e-13);
        }
    }

    /// Each entry of the matrix has mean 0 and mean square 1/3.
    #[test]
    fn rotations_are_uniform() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let count = 4000;
        let drawn: Vec<[Vector; 3]> = (0..count).map(|_| orthogonal(1.0, &mut rng)).collect();
        for (row, axis) in (0..3).flat_map(|row| (0..3).map(move |axis| (row, axis))) {
            let entries = drawn.iter().map(|matrix| matrix[row][axis]);
            let sum: f64 = entries.clone().sum();
            let squares: f64 = entries.map(|x| x * x).sum();
            // Five standard errors.
            let n = f64::from(count);
            assert!((sum / n).abs() < 5.0 * (1.0 / 3.0 / n).sqrt());
            assert!((squares / n - 1.0 / 3.0).abs() < 5.0 * (4.0 / 45.0 / n).sqrt());
        }
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
