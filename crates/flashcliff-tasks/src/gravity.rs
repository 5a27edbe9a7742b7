//! Gravity: where a star and its planets are after a tenth of a unit of time.
//!
//! The distribution is that of GATr's simulator (arXiv 2305.18415), with G = 1:
//!
//! - The star's mass is log-uniform in [1, 10], the masses of the planets in [0.01, 0.1].
//! - The star is at the origin, at rest. Planets are uniform in the annulus of radii 0.1 and 1 of the xy plane. Each
//!   goes around the star on a circle, either way, with a velocity that is disturbed by N(0, 0.01^2).
//! - The bodies are permuted. One rotation, uniform among all, turns positions and velocities, and a translation from
//!   N(0, 20^2) moves positions.
//! - 100 steps of semi-implicit Euler, 0.001 each, move the bodies. A sample in which a body moved by more than 2 is dropped.
//!
//! The published program draws a tenth more samples than it needs, drops, and keeps the first ones. Here a dropped
//! sample is drawn again, which is the same distribution. The random numbers are others, so the samples are not those
//! of the published files.

use std::array::from_fn;
use std::f64::consts::LN_10;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal, StandardUniform};

use crate::sampling::splits;
use crate::{Dataset, Motion, Observer, Sizes, Task, TaskError};

/// Bodies of one sample.
pub(crate) const BODIES: usize = 4;
/// Dimension of space.
pub(crate) const DIM: usize = 3;
/// Numbers of a body: mass, position, velocity.
pub(crate) const ROW: usize = 1 + 2 * DIM;

const STEPS: usize = 100;
const TIME_STEP: f64 = 0.001;
/// A body that moves further than this makes the sample an outlier.
const FURTHEST: f64 = 2.0;
/// Decades of the masses of the star and of planets: the exponents of ten of their smallest and largest masses.
const STAR_DECADES: (f64, f64) = (0.0, 1.0);
const PLANET_DECADES: (f64, f64) = (-2.0, -1.0);
const INNER_RADIUS: f64 = 0.1;
const OUTER_RADIUS: f64 = 1.0;
const VELOCITY_NOISE: f64 = 0.01;
const TRANSLATION: f64 = 20.0;

/// How the bodies move.
pub(crate) const MOTION: Motion = Motion {
    bodies: BODIES,
    dim: DIM,
    steps: STEPS,
    time: STEPS as f64 * TIME_STEP,
    advance,
};

type Vector = [f64; DIM];

/// Moves the bodies of a sample, as rows of numbers.
fn advance(bodies: &mut [f64], steps: usize) {
    let end = System::of(bodies).after(steps);
    end.write_rows(bodies);
}

pub(crate) fn generate(
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let task = Task::Gravity;
    let splits = splits(task, sizes, 1, seed, observer, |_, rng, inputs, targets| {
        let (start, end) = loop {
            let start = System::draw(rng);
            let end = start.after(STEPS);
            if end.largest_distance_from(&start) <= FURTHEST {
                break (start, end);
            }
        };
        start.write(inputs, targets, &end);
        Ok(())
    })?;
    Ok(Dataset::unscaled(task, &splits))
}

/// The bodies at one time.
#[derive(Clone, Debug, PartialEq)]
struct System {
    masses: [f64; BODIES],
    positions: [Vector; BODIES],
    velocities: [Vector; BODIES],
}

impl System {
    /// The bodies of a sample: the rows of all, one after the other.
    fn of(bodies: &[f64]) -> Self {
        let number = |i: usize, at: usize| bodies[i * ROW + at];
        let vectors = |first: usize| from_fn(|i| from_fn(|axis| number(i, first + axis)));
        Self {
            masses: from_fn(|i| number(i, 0)),
            positions: vectors(1),
            velocities: vectors(1 + DIM),
        }
    }

    fn draw(rng: &mut impl Rng) -> Self {
        let mut system = Self::around_the_origin(rng);
        system.permute(rng);
        let rotation = rotation(from_fn(|_| StandardNormal.sample(rng)));
        let translation: Vector = from_fn(|_| TRANSLATION * normal(rng));
        for (x, v) in system.positions.iter_mut().zip(&mut system.velocities) {
            *x = add(rotated(&rotation, *x), translation);
            *v = rotated(&rotation, *v);
        }
        system
    }

    /// The star, then the planets, in the xy plane.
    fn around_the_origin(rng: &mut impl Rng) -> Self {
        let mut system = Self {
            masses: [0.0; BODIES],
            positions: [[0.0; DIM]; BODIES],
            velocities: [[0.0; DIM]; BODIES],
        };
        system.masses[0] = log_uniform(rng, STAR_DECADES);
        let speed_of_unit = system.masses[0].sqrt();
        for planet in 1..BODIES {
            system.masses[planet] = log_uniform(rng, PLANET_DECADES);
            let (x, y, radius) = in_annulus(rng);
            let way = if rng.random::<bool>() { 1.0 } else { -1.0 };
            let speed = way * speed_of_unit / radius.powf(1.5);
            system.positions[planet] = [x, y, 0.0];
            let circular = [-y * speed, x * speed, 0.0];
            system.velocities[planet] = circular.map(|v| v + VELOCITY_NOISE * normal(rng));
        }
        system
    }

    fn permute(&mut self, rng: &mut impl Rng) {
        for last in (1..BODIES).rev() {
            let other = rng.random_range(0..=last);
            self.masses.swap(last, other);
            self.positions.swap(last, other);
            self.velocities.swap(last, other);
        }
    }

    /// The system after some steps of semi-implicit Euler.
    fn after(&self, steps: usize) -> Self {
        let mut system = self.clone();
        for _ in 0..steps {
            let accelerations = system.accelerations();
            let bodies = system.positions.iter_mut().zip(&mut system.velocities);
            for ((x, v), a) in bodies.zip(accelerations) {
                *v = add(*v, scaled(a, TIME_STEP));
                *x = add(*x, scaled(*v, TIME_STEP));
            }
        }
        system
    }

    /// `a_i = sum_j m_j (x_j - x_i) / r^3`. Bodies at one place do not attract each other.
    fn accelerations(&self) -> [Vector; BODIES] {
        let mut accelerations = [[0.0; DIM]; BODIES];
        for (i, acceleration) in accelerations.iter_mut().enumerate() {
            for j in (0..BODIES).filter(|&j| j != i) {
                let distance = add(self.positions[j], scaled(self.positions[i], -1.0));
                let radius = match length(distance) {
                    r if r < 1e-9 => 1.0,
                    r => r,
                };
                let pull = scaled(distance, self.masses[j] / radius.powi(3));
                *acceleration = add(*acceleration, pull);
            }
        }
        accelerations
    }

    /// How far the body that moved furthest has moved.
    fn largest_distance_from(&self, start: &Self) -> f64 {
        let pairs = self.positions.iter().zip(&start.positions);
        let moved = pairs.map(|(&end, &start)| length(add(end, scaled(start, -1.0))));
        moved.fold(0.0, f64::max)
    }

    /// Writes each body: mass, position, velocity.
    fn write_rows(&self, rows: &mut [f64]) {
        for (body, row) in rows.chunks_exact_mut(ROW).enumerate() {
            row[0] = self.masses[body];
            row[1..=DIM].copy_from_slice(&self.positions[body]);
            row[1 + DIM..].copy_from_slice(&self.velocities[body]);
        }
    }

    /// Writes a sample that begins here.
    fn write(&self, inputs: &mut [f64], targets: &mut [f64], end: &Self) {
        self.write_rows(inputs);
        for (target, position) in targets.chunks_exact_mut(DIM).zip(&end.positions) {
            target.copy_from_slice(position);
        }
    }
}

fn add(a: Vector, b: Vector) -> Vector {
    from_fn(|i| a[i] + b[i])
}

fn scaled(a: Vector, factor: f64) -> Vector {
    a.map(|x| x * factor)
}

fn length(a: Vector) -> f64 {
    a.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn normal(rng: &mut impl Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn log_uniform(rng: &mut impl Rng, (low, high): (f64, f64)) -> f64 {
    let uniform: f64 = StandardUniform.sample(rng);
    (LN_10 * (low + (high - low) * uniform)).exp()
}

/// Uniform in the annulus, with the distance from the origin.
fn in_annulus(rng: &mut impl Rng) -> (f64, f64, f64) {
    loop {
        let mut coordinate = || -> f64 {
            let uniform: f64 = StandardUniform.sample(rng);
            OUTER_RADIUS * (2.0 * uniform - 1.0)
        };
        let (x, y) = (coordinate(), coordinate());
        let radius = (x * x + y * y).sqrt();
        if (INNER_RADIUS..=OUTER_RADIUS).contains(&radius) {
            return (x, y, radius);
        }
    }
}

/// The matrix of a quaternion `(w, x, y, z)` of any length. Normal components make it uniform among rotations.
fn rotation([w, x, y, z]: [f64; 4]) -> [Vector; DIM] {
    let scale = 2.0 / (w * w + x * x + y * y + z * z);
    [
        [
            1.0 - scale * (y * y + z * z),
            scale * (x * y - w * z),
            scale * (x * z + w * y),
        ],
        [
            scale * (x * y + w * z),
            1.0 - scale * (x * x + z * z),
            scale * (y * z - w * x),
        ],
        [
            scale * (x * z - w * y),
            scale * (y * z + w * x),
            1.0 - scale * (x * x + y * y),
        ],
    ]
}

fn rotated(matrix: &[Vector; DIM], v: Vector) -> Vector {
    matrix.map(|row| row.iter().zip(v).map(|(m, v)| m * v).sum())
}

#[cfg(test)]
mod tests;
