//! Jets of massless particles of two known distributions, so that the best possible classifier is known, too.
//!
//! A jet is drawn in its own frame, and boosted:
//!
//! - It has 20 to 80 particles, each number as likely as all others.
//! - The energy of a particle is from the gamma distribution of shape 2 and mean 1. It has no mass.
//! - Directions of a *background* jet are uniform on the sphere. A *signal* jet has an axis, uniform on the sphere,
//!   and the density of a direction at the angle `t` to it is `(1 + STRENGTH P2(cos t)) / 4 pi`, with the Legendre
//!   polynomial `P2(x) = (3 x^2 - 1) / 2`.
//! - Both kinds are equally likely. A boost along a direction that is uniform on the sphere, of a rapidity that is
//!   uniform in [0, 1.5], moves all particles of the jet.
//!
//! Whoever knew the frame could do no better than to compare the two densities. The logarithm of their ratio comes
//! with each jet: the mean, over all axes, of the product over particles of `1 + STRENGTH P2`. A classifier of the
//! boosted particles does not know the frame, so the error of this one is a bound of all.

mod ratio;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Gamma, StandardNormal};

use crate::sampling::{Shape, splits};
use crate::{Observer, Sizes, SplitName, TaskError};

/// The most particles of a jet.
pub const MAX_PARTICLES: usize = 80;
/// The fewest particles of a jet.
pub const MIN_PARTICLES: usize = 20;
/// How much the directions of a signal jet depend on the angle to its axis.
pub const STRENGTH: f64 = 1.0;

const MAX_RAPIDITY: f64 = 1.5;
const ENERGY_SHAPE: f64 = 2.0;
/// Numbers of a particle.
const ROW: usize = 4;

/// Jets of one split.
#[derive(Clone, Debug, PartialEq)]
pub struct JetSplit {
    /// Momenta `(E, px, py, pz)`, `[jets, MAX_PARTICLES, 4]`, row-major. Rows after the last particle of a jet are zeros.
    pub particles: Vec<f32>,
    /// The number of particles of each jet.
    pub counts: Vec<u32>,
    /// 1 of signal, 0 of background.
    pub labels: Vec<f32>,
    /// The logarithm of the density of signal over that of background, of someone who knows the frame.
    pub log_ratios: Vec<f32>,
}

impl JetSplit {
    /// The number of jets.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no jet.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The share of jets whose label a score above 0 tells; NaN without jets.
    ///
    /// # Errors
    /// [`TaskError::PredictionCount`] unless there is a score for each jet.
    pub fn accuracy(&self, scores: &[f32]) -> Result<f64, TaskError> {
        if scores.len() != self.len() {
            return Err(TaskError::PredictionCount {
                expected: self.len(),
                got: scores.len(),
            });
        }
        let told = scores.iter().zip(&self.labels);
        let right = told.filter(|&(&score, &label)| (score > 0.0) == (label > 0.5));
        Ok(right.count() as f64 / self.len() as f64)
    }
}

/// Training, validation and test jets.
#[derive(Clone, Debug, PartialEq)]
pub struct Jets {
    /// Jets to learn from.
    pub train: JetSplit,
    /// Jets to report while training.
    pub val: JetSplit,
    /// Jets to report at the end.
    pub test: JetSplit,
}

/// Makes the jets of a seed, in parallel on rayon's current pool. They depend on the sizes and the seed as the data of
/// [tasks](crate#determinism) do.
///
/// ```
/// use flashcliff_tasks::{Sizes, jets};
///
/// let sizes = Sizes { train: 64, val: 0, test: 256 };
/// let jets = jets::generate(sizes, 0, &|_| std::ops::ControlFlow::Continue(()))?;
/// assert_eq!(jets.train.particles.len(), 64 * jets::MAX_PARTICLES * 4);
/// println!("at best {:.3} of the labels can be told", jets.test.accuracy(&jets.test.log_ratios)?);
/// # Ok::<(), flashcliff_tasks::TaskError>(())
/// ```
///
/// # Errors
/// [`TaskError::TooFewSamples`] without training jets; [`TaskError::OutOfMemory`]; [`TaskError::Stopped`] if the observer stopped
/// the work.
pub fn generate(sizes: Sizes, seed: u64, observer: Observer<'_>) -> Result<Jets, TaskError> {
    let shape = Shape {
        points: MAX_PARTICLES,
        dim: ROW,
        target_len: Target::LEN,
    };
    let draw = |_: (SplitName, usize), rng: &mut _, particles: &mut [f64], target: &mut [f64]| {
        let jet = Jet::draw(rng);
        jet.write(particles);
        target[Target::COUNT] = jet.directions.len() as f64;
        target[Target::LABEL] = if jet.signal { 1.0 } else { 0.0 };
        target[Target::LOG_RATIO] = ratio::log_ratio(&jet.directions, STRENGTH);
        Ok(())
    };
    let splits = splits(shape, sizes, 1, seed, observer, draw)?;
    let [train, val, test] = splits.each_ref().map(|split| {
        let column = |at| split.targets.iter().skip(at).step_by(Target::LEN);
        JetSplit {
            particles: split.inputs.iter().map(|&x| x as f32).collect(),
            counts: column(Target::COUNT).map(|&x| x as u32).collect(),
            labels: column(Target::LABEL).map(|&x| x as f32).collect(),
            log_ratios: column(Target::LOG_RATIO).map(|&x| x as f32).collect(),
        }
    });
    Ok(Jets { train, val, test })
}

/// Places of what is known about a jet.
struct Target;

impl Target {
    const COUNT: usize = 0;
    const LABEL: usize = 1;
    const LOG_RATIO: usize = 2;
    const LEN: usize = 3;
}

type Vector = [f64; 3];

/// A jet in its own frame, and its boost.
struct Jet {
    signal: bool,
    energies: Vec<f64>,
    directions: Vec<Vector>,
    boost: Vector,
    rapidity: f64,
}

impl Jet {
    fn draw(rng: &mut impl Rng) -> Self {
        let signal = rng.random::<bool>();
        let count = rng.random_range(MIN_PARTICLES..=MAX_PARTICLES);
        let axis = direction(rng);
        let gamma = Gamma::new(ENERGY_SHAPE, 1.0 / ENERGY_SHAPE);
        let gamma = gamma.expect("shape and scale are positive");
        let mut jet = Self {
            signal,
            energies: Vec::with_capacity(count),
            directions: Vec::with_capacity(count),
            boost: direction(rng),
            rapidity: MAX_RAPIDITY * rng.random::<f64>(),
        };
        for _ in 0..count {
            jet.energies.push(gamma.sample(rng));
            jet.directions.push(if signal {
                direction_about(rng, axis)
            } else {
                direction(rng)
            });
        }
        jet
    }

    /// Writes the boosted momenta.
    fn write(&self, particles: &mut [f64]) {
        let (cosh, sinh) = (self.rapidity.cosh(), self.rapidity.sinh());
        let momenta = self.energies.iter().zip(&self.directions);
        for (row, (&energy, direction)) in particles.chunks_exact_mut(ROW).zip(momenta) {
            let along = energy * dot(*direction, self.boost);
            row[0] = energy * cosh + along * sinh;
            let more = (cosh - 1.0) * along + sinh * energy;
            for axis in 0..3 {
                row[1 + axis] = energy * direction[axis] + more * self.boost[axis];
            }
        }
    }
}

/// Uniform on the sphere.
fn direction(rng: &mut impl Rng) -> Vector {
    loop {
        let v: Vector = std::array::from_fn(|_| StandardNormal.sample(rng));
        let length = dot(v, v).sqrt();
        if length > 1e-6 {
            return v.map(|x| x / length);
        }
    }
}

/// A direction of a signal jet, by rejection.
fn direction_about(rng: &mut impl Rng, axis: Vector) -> Vector {
    let most = density(1.0, STRENGTH).max(density(0.0, STRENGTH));
    loop {
        let candidate = direction(rng);
        if most * rng.random::<f64>() < density(dot(candidate, axis), STRENGTH) {
            return candidate;
        }
    }
}

/// The density of directions over the uniform one, at a cosine of the angle to the axis.
fn density(cosine: f64, strength: f64) -> f64 {
    1.0 + strength * (1.5 * cosine * cosine - 0.5)
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[cfg(test)]
mod tests;
