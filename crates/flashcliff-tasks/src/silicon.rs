//! Silicon: energies and forces of crystals that are strained and shaken, by the potential of
//! Stillinger and Weber.
//!
//! A sample is a crystal of [`ATOMS`] atoms, two cubic cells side by side, that repeats in all
//! directions. It has a row of [`ROW`] numbers for each *site*: the atoms with their places, in
//! Angstrom, and a 1; then the [`IMAGES`] translations of the lattice by -1, 0 or 1 of each lattice
//! vector, the last one fastest, and a 0. The vector of an edge is the place of its sender, moved
//! by a translation, less the place of its receiver.
//!
//! - Each element of the strain is uniform from -[`STRAIN`] to [`STRAIN`]: a vector `v` becomes `v + v s`.
//! - Each coordinate of each atom moves by up to an amplitude, uniform from 0 to [`SHAKE`] for each sample.
//!
//! So no atom comes nearer to another than the cut-off that is not within [`reach`] of it in the
//! crystal at rest: all samples can have one list of edges.
//!
//! A sample has four targets for each atom: its force, in eV/Angstrom, and [`ENERGY_WEIGHT`] times
//! the mean energy of an atom, in eV above the crystal at rest. So the mean squared error counts
//! both, and [`Errors`] has each by itself.
//!
//! # The potential
//! With `r` in units of [`SIGMA`] and energies in units of [`EPSILON`]:
//!
//! ```text
//! E = sum over pairs of A (B r^-4 - 1) exp(1 / (r - 1.8))
//!   + sum over atoms and pairs of their neighbours of 21 (cos + 1/3)^2 exp(1.2 / (r - 1.8)) exp(1.2 / (s - 1.8))
//! ```
//!
//! Source: Stillinger and Weber, Phys. Rev. B 31, 5262 (1985), for silicon.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::sampling::splits;
use crate::{Dataset, Observer, Sizes, Split, Task, TaskError};

/// A place or a direction.
pub type Vector = [f64; 3];
/// Lattice vectors, one in each row.
pub type Cell = [Vector; 3];

/// Atoms of a sample.
pub const ATOMS: usize = 16;
/// Translations of a sample.
pub const IMAGES: usize = 27;
/// Numbers of a site: three coordinates, and 1 for an atom of silicon.
pub const ROW: usize = 4;
/// Targets of an atom: its force, and the weighted mean energy of an atom of its sample.
pub const TARGETS: usize = 4;
/// The factor of energies of atoms among the targets.
pub const ENERGY_WEIGHT: f64 = 5.0;
/// The largest elements of the strain.
pub const STRAIN: f64 = 0.03;
/// The largest move of an atom along an axis, in Angstrom.
pub const SHAKE: f64 = 0.3;
/// The unit of energies, in eV.
pub const EPSILON: f64 = 2.1683;
/// The energy of an atom of the crystal at rest, in eV.
pub const ENERGY_AT_REST: f64 = -2.0 * EPSILON;
/// The unit of lengths, in Angstrom.
pub const SIGMA: f64 = 2.0951;
/// The distance from which on atoms do not see each other, in Angstrom.
pub const CUTOFF: f64 = 1.8 * SIGMA;
/// The lattice constant, in Angstrom.
pub const LATTICE: f64 = 5.431;
/// The mass of an atom, in u.
pub const MASS: f64 = 28.0855;
/// A femtosecond, in Angstrom sqrt(u / eV), the time in which forces in eV/Angstrom move masses in
/// u.
pub const FEMTOSECOND: f64 = 0.098_226_947_884_640_63;

const A: f64 = 7.049_556_277;
const B: f64 = 0.602_224_558_4;
const LAMBDA: f64 = 21.0;
const GAMMA: f64 = 1.2;
/// Forces below this have no direction worth the name, in eV/Angstrom.
const SMALL: f32 = 0.1;
/// The places of atoms in a cubic cell, in quarters of the lattice constant.
const CORNERS: [[u8; 3]; 8] = [
    [0, 0, 0],
    [0, 2, 2],
    [2, 0, 2],
    [2, 2, 0],
    [1, 1, 1],
    [1, 3, 3],
    [3, 1, 3],
    [3, 3, 1],
];

/// Atoms that repeat with the vectors of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Crystal {
    /// The place of each atom, in Angstrom. It may lie outside of the cell.
    pub places: Vec<Vector>,
    /// The lattice vectors.
    pub cell: Cell,
}

/// An edge between two atoms: the sender moved by a shift, in lattice vectors, is near the
/// receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The atom that sees the other one.
    pub receiver: usize,
    /// The atom that is seen.
    pub sender: usize,
    /// The translation of the sender, in lattice vectors.
    pub shift: [i32; 3],
}

impl Crystal {
    /// Silicon at rest: so many cubic cells of eight atoms along each axis.
    pub fn at_rest(cells: [usize; 3]) -> Self {
        let mut places = Vec::with_capacity(8 * cells.iter().product::<usize>());
        for x in 0..cells[0] {
            for y in 0..cells[1] {
                for z in 0..cells[2] {
                    let cell = [x, y, z];
                    let at = |corner: [u8; 3]| {
                        std::array::from_fn(|axis| {
                            LATTICE * (cell[axis] as f64 + f64::from(corner[axis]) / 4.0)
                        })
                    };
                    places.extend(CORNERS.map(at));
                }
            }
        }
        let mut cell = Cell::default();
        (0..3).for_each(|axis| cell[axis][axis] = LATTICE * cells[axis] as f64);
        Self { places, cell }
    }

    /// The crystal of samples, before it is strained and shaken.
    pub fn of_samples() -> Self {
        Self::at_rest([2, 1, 1])
    }

    /// The translation by some lattice vectors.
    pub fn translation(&self, shift: [i32; 3]) -> Vector {
        std::array::from_fn(|axis| {
            let part = |at: usize| f64::from(shift[at]) * self.cell[at][axis];
            part(0) + part(1) + part(2)
        })
    }

    /// The volume of the cell, in cubic Angstrom.
    pub fn volume(&self) -> f64 {
        dot(self.cell[0], cross(self.cell[1], self.cell[2]))
    }

    /// The vector of an edge, from its receiver to the image of its sender.
    pub fn vector(&self, edge: &Edge) -> Vector {
        let (to, from) = (self.places[edge.receiver], self.places[edge.sender]);
        let moved = self.translation(edge.shift);
        std::array::from_fn(|axis| from[axis] - to[axis] + moved[axis])
    }

    /// All edges that are shorter than a distance, sorted by receiver, sender and shift. Each pair
    /// has two. A cell may be smaller than the distance: an atom's own images count, too.
    pub fn edges(&self, distance: f64) -> Vec<Edge> {
        // A shift moves an atom by a whole number of planes that are so far apart.
        let volume = self.volume();
        let normals: [Vector; 3] = std::array::from_fn(|at| {
            let normal = cross(self.cell[(at + 1) % 3], self.cell[(at + 2) % 3]);
            normal.map(|own| own / volume)
        });
        let most = normals.map(|normal| distance * dot(normal, normal).sqrt());
        let fractions = self.places.iter();
        let fractions: Vec<Vector> = fractions
            .map(|&place| normals.map(|own| dot(own, place)))
            .collect();
        let mut found = Vec::new();
        for (receiver, to) in fractions.iter().enumerate() {
            for (sender, from) in fractions.iter().enumerate() {
                let range = |at: usize| {
                    let apart = from[at] - to[at];
                    let [low, high] = [(-most[at] - apart).ceil(), (most[at] - apart).floor()];
                    low as i32..=high as i32
                };
                for x in range(0) {
                    for y in range(1) {
                        for z in range(2) {
                            let shift = [x, y, z];
                            let own = Edge {
                                receiver,
                                sender,
                                shift,
                            };
                            let is_itself = receiver == sender && shift == [0; 3];
                            let vector = self.vector(&own);
                            if !is_itself && dot(vector, vector) < distance * distance {
                                found.push(own);
                            }
                        }
                    }
                }
            }
        }
        found
    }

    /// The energy in eV, and the force on each atom in eV/Angstrom.
    pub fn energy_and_forces(&self) -> (f64, Vec<Vector>) {
        let edges = self.edges(CUTOFF);
        let mut forces = vec![[0.0; 3]; self.places.len()];
        let mut energy = 0.0;
        for around in edges.chunk_by(|a, b| a.receiver == b.receiver) {
            let near: Vec<Near> = around.iter().map(|own| self.near(own)).collect();
            // The derivative of the energy by the vector of each edge.
            let mut slopes = vec![[0.0; 3]; near.len()];
            for (own, slope) in near.iter().zip(&mut slopes) {
                let (pair, by_length) = pair(own.length);
                energy += pair / 2.0;
                add(slope, by_length / 2.0, own.unit);
            }
            for (at, one) in near.iter().enumerate() {
                for (behind, two) in near.iter().enumerate().skip(at + 1) {
                    let cosine = dot(one.unit, two.unit);
                    let bend = cosine + 1.0 / 3.0;
                    let strength = LAMBDA * EPSILON * bend;
                    energy += strength * bend * one.fade * two.fade;
                    let by_cosine = 2.0 * strength * one.fade * two.fade;
                    for (place, own, other) in [(at, one, two), (behind, two, one)] {
                        let slope = &mut slopes[place];
                        let across = by_cosine / own.length;
                        let by_length = strength * bend * own.fade_slope * other.fade;
                        add(slope, across, other.unit);
                        add(slope, by_length - across * cosine, own.unit);
                    }
                }
            }
            for (edge, slope) in around.iter().zip(slopes) {
                add(&mut forces[edge.receiver], 1.0, slope);
                add(&mut forces[edge.sender], -1.0, slope);
            }
        }
        (energy, forces)
    }

    fn near(&self, edge: &Edge) -> Near {
        let vector = self.vector(edge);
        let length = dot(vector, vector).sqrt();
        let gap = length - CUTOFF;
        let fade = (GAMMA * SIGMA / gap).exp();
        Near {
            length,
            unit: vector.map(|own| own / length),
            fade,
            fade_slope: -fade * GAMMA * SIGMA / (gap * gap),
        }
    }
}

/// A neighbour of an atom.
struct Near {
    length: f64,
    unit: Vector,
    /// How much it counts in angles, and the derivative by the length.
    fade: f64,
    fade_slope: f64,
}

/// The energy of a pair at a distance below the cut-off, and its derivative.
fn pair(length: f64) -> (f64, f64) {
    let gap = length - CUTOFF;
    let fade = A * EPSILON * (SIGMA / gap).exp();
    let square = (SIGMA / length) * (SIGMA / length);
    let power = B * square * square;
    let well = power - 1.0;
    let slope = -4.0 * power / length - well * SIGMA / (gap * gap);
    (fade * well, fade * slope)
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

/// Adds a vector times a factor.
fn add(to: &mut Vector, factor: f64, own: Vector) {
    to.iter_mut()
        .zip(own)
        .for_each(|(to, own)| *to += factor * own);
}

/// The distance in the crystal at rest within which all atoms are that can come nearer than the
/// cut-off in a sample.
pub fn reach() -> f64 {
    // A strain shortens a vector by its Frobenius norm at most, and a shake moves both ends.
    (CUTOFF + 2.0 * 3_f64.sqrt() * SHAKE) / (1.0 - 3.0 * STRAIN)
}

/// The shifts of the translations of a sample, in the order of their sites.
pub fn shifts() -> [[i32; 3]; IMAGES] {
    std::array::from_fn(|at| [at / 9, at / 3 % 3, at % 3].map(|own| own as i32 - 1))
}

/// A crystal of samples that is strained and shaken.
fn draw(rng: &mut ChaCha8Rng) -> Crystal {
    let mut crystal = Crystal::of_samples();
    let strain: Cell = std::array::from_fn(|_| std::array::from_fn(|_| STRAIN * uniform(rng)));
    let amplitude = SHAKE * (1.0 + uniform(rng)) / 2.0;
    let strained = |own: &mut Vector| {
        let start = *own;
        for (part, row) in start.into_iter().zip(strain) {
            add(own, part, row);
        }
    };
    crystal.places.iter_mut().for_each(strained);
    crystal.cell.iter_mut().for_each(strained);
    for place in crystal.places.as_flattened_mut() {
        *place += amplitude * uniform(rng);
    }
    crystal
}

/// A number from -1 to 1, of 53 random bits: the same on every machine.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    let bits = rng.next_u64() >> 11;
    bits as f64 * 2_f64.powi(-52) - 1.0
}

/// Writes a crystal as a sample.
fn write(crystal: &Crystal, inputs: &mut [f64], targets: &mut [f64]) {
    let translations = shifts().map(|shift| crystal.translation(shift));
    let sites = crystal.places.iter().map(|place| (place, 1.0));
    let sites = sites.chain(translations.iter().map(|own| (own, 0.0)));
    for (row, (place, atom)) in inputs.chunks_exact_mut(ROW).zip(sites) {
        row[..3].copy_from_slice(place);
        row[3] = atom;
    }
    let (energy, forces) = crystal.energy_and_forces();
    let mean = energy / ATOMS as f64 - ENERGY_AT_REST;
    for (row, force) in targets.chunks_exact_mut(TARGETS).zip(forces) {
        row[..3].copy_from_slice(&force);
        row[3] = ENERGY_WEIGHT * mean;
    }
}

pub(crate) fn generate(
    sizes: Sizes,
    seed: u64,
    observer: Observer<'_>,
) -> Result<Dataset, TaskError> {
    let task = Task::Forces;
    let made = splits(task, sizes, 1, seed, observer, |_, rng, x, y| {
        write(&draw(rng), x, y);
        Ok(())
    })?;
    Ok(Dataset::unscaled(task, &made))
}

/// The errors of energies and forces over a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The mean absolute error of energies, in meV an atom.
    pub energy: f64,
    /// The mean absolute error of components of forces, in meV/Angstrom.
    pub force: f64,
    /// The mean cosine between forces and predicted ones, over atoms with forces above 0.1
    /// eV/Angstrom. That of no force is 0.
    pub cosine: f64,
}

impl Errors {
    /// The errors of predictions, one for each target of a split.
    ///
    /// ```
    /// use flashcliff_tasks::{Sizes, Task, silicon};
    ///
    /// let data = Task::Forces.generate(Sizes { train: 8, val: 0, test: 2 }, 0)?;
    /// let perfect = silicon::Errors::of(&data.test, &data.test.targets)?;
    /// assert_eq!((perfect.energy, perfect.force), (0.0, 0.0));
    /// assert!((perfect.cosine - 1.0).abs() < 1e-9);
    /// # Ok::<(), flashcliff_tasks::TaskError>(())
    /// ```
    ///
    /// # Errors
    /// [`TaskError::PredictionCount`].
    pub fn of(split: &Split, predictions: &[f32]) -> Result<Self, TaskError> {
        if predictions.len() != split.targets.len() {
            return Err(TaskError::PredictionCount {
                expected: split.targets.len(),
                got: predictions.len(),
            });
        }
        let (mut energy, mut force, mut cosine) =
            (Mean::default(), Mean::default(), Mean::default());
        let rows = |numbers| <[f32]>::as_chunks::<TARGETS>(numbers).0.iter();
        for (got, wanted) in rows(predictions).zip(rows(&split.targets)) {
            let apart = |at: usize| 1e3 * (f64::from(got[at]) - f64::from(wanted[at])).abs();
            energy.add(apart(3) / ENERGY_WEIGHT);
            (0..3).for_each(|axis| force.add(apart(axis)));
            let [got, wanted] = [got, wanted].map(|row| [row[0], row[1], row[2]].map(f64::from));
            let [length, size] = [got, wanted].map(|own| dot(own, own).sqrt());
            if size > f64::from(SMALL) {
                let both = length * size;
                cosine.add(if both > 0.0 {
                    dot(got, wanted) / both
                } else {
                    0.0
                });
            }
        }
        Ok(Self {
            energy: energy.of(),
            force: force.of(),
            cosine: cosine.of(),
        })
    }

    /// The errors of no force, and of the mean energy of a training set.
    pub fn trivial(train: &Split, split: &Split) -> Self {
        let energies = train.targets.iter().skip(3).step_by(TARGETS);
        let sum: f64 = energies.clone().map(|&own| f64::from(own)).sum();
        let mean = (sum / energies.count() as f64) as f32;
        let predictions: Vec<f32> = [0.0, 0.0, 0.0, mean].repeat(split.targets.len() / TARGETS);
        Self::of(split, &predictions).unwrap_or(Self {
            energy: f64::NAN,
            force: f64::NAN,
            cosine: f64::NAN,
        })
    }
}

/// A mean that is being summed. That of nothing is NaN.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, own: f64) {
        self.sum += own;
        self.count += 1;
    }

    fn of(self) -> f64 {
        self.sum / self.count as f64
    }
}

#[cfg(test)]
mod tests;
