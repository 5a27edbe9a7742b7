//! Atoms that move by the forces of a network.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;

use candle_core::{DType, Device};
use flashcliff::memory;
use flashcliff_candle::models::{ForceField, Model, Neighbourhoods};
use flashcliff_tasks::silicon::{Crystal, FEMTOSECOND, MASS, Vector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::Error;

/// The constant of Boltzmann, in eV/K.
const BOLTZMANN: f64 = 8.617_333_262e-5;

/// The least memory that an edge takes, in the list of edges and in the relations.
const BYTES_OF_EDGE: f64 = 100.0;

/// How atoms move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// In femtoseconds.
    pub(super) time_step: f64,
    /// In kelvin, once the energy is shared.
    pub(super) temperature: f64,
    /// In Angstrom.
    pub(super) skin: f64,
    pub(super) seed: u64,
}

/// A crystal that moves by velocity Verlet.
#[derive(Debug)]
pub(super) struct Simulation<'a> {
    field: ForceField,
    place: (&'a Device, DType),
    settings: Settings,
    crystal: Crystal,
    velocities: Vec<Vector>,
    neighbours: Neighbours,
    /// The energy of the potential, and the forces.
    found: (f64, Vec<Vector>),
    searches: usize,
}

/// The edges of a crystal within the cut-off and the skin.
#[derive(Debug)]
struct Neighbours {
    /// The places at the search.
    places: Vec<Vector>,
    own: Neighbourhoods,
    edges: usize,
}

impl Neighbours {
    fn search(crystal: &Crystal, distance: f64) -> Result<Self, Error> {
        let atoms = crystal.places.len() as f64;
        let around = 2.0 / 3.0 * TAU * distance.powi(3) * atoms / crystal.volume();
        let bytes = atoms * around * BYTES_OF_EDGE;
        let what = format!("the edges between atoms that are up to {distance} Angstrom apart");
        memory::check(&what, bytes as u128, |_| "make --skin smaller".to_owned())?;
        let edges = crystal.edges(distance);
        let shifts: BTreeSet<[i32; 3]> = edges.iter().map(|edge| edge.shift).collect();
        let numbers: BTreeMap<[i32; 3], usize> = shifts.iter().copied().zip(0..).collect();
        let translations: Vec<Vector> =
            shifts.iter().map(|&own| crystal.translation(own)).collect();
        let ends = edges.iter();
        let ends = ends.map(|edge| [edge.receiver, edge.sender, numbers[&edge.shift]]);
        let ends: Vec<[usize; 3]> = ends.collect();
        Ok(Self {
            places: crystal.places.clone(),
            own: Neighbourhoods::new(crystal.places.len(), &translations, &ends)?,
            edges: ends.len(),
        })
    }

    /// Whether an atom has moved so far that another one may have come within the cut-off unseen.
    fn are_old(&self, crystal: &Crystal, skin: f64) -> bool {
        let mut pairs = crystal.places.iter().zip(&self.places);
        pairs.any(|(now, then)| {
            let square: f64 = now.iter().zip(then).map(|(x, y)| (x - y).powi(2)).sum();
            square > (skin / 2.0).powi(2)
        })
    }
}

impl<'a> Simulation<'a> {
    /// A crystal with random velocities of twice the temperature, and no motion as a whole.
    ///
    /// # Errors
    /// The errors of candle; [`Error::OutOfRange`] for a model without forces.
    pub(super) fn start(
        model: &Model,
        place: (&'a Device, DType),
        crystal: Crystal,
        settings: Settings,
    ) -> Result<Self, Error> {
        let field = model.force_field().ok_or_else(|| Error::OutOfRange {
            option: "the task",
            expected: "one with forces".to_owned(),
            got: model.architecture().name().to_owned(),
        })?;
        let neighbours = Neighbours::search(&crystal, field.cutoff() + settings.skin)?;
        let found = field.energy_and_forces(&crystal.places, &neighbours.own, place)?;
        Ok(Self {
            velocities: velocities(crystal.places.len(), settings),
            field,
            place,
            settings,
            crystal,
            neighbours,
            found,
            searches: 1,
        })
    }

    /// One step of velocity Verlet.
    pub(super) fn step(&mut self) -> Result<(), Error> {
        let time = self.settings.time_step * FEMTOSECOND;
        self.pull(time / 2.0);
        for (place, velocity) in self.crystal.places.iter_mut().zip(&self.velocities) {
            place
                .iter_mut()
                .zip(velocity)
                .for_each(|(x, v)| *x += time * v);
        }
        if self.neighbours.are_old(&self.crystal, self.settings.skin) {
            let distance = self.field.cutoff() + self.settings.skin;
            self.neighbours = Neighbours::search(&self.crystal, distance)?;
            self.searches += 1;
        }
        let places = &self.crystal.places;
        self.found = self
            .field
            .energy_and_forces(places, &self.neighbours.own, self.place)?;
        self.pull(time / 2.0);
        Ok(())
    }

    /// Changes velocities by the forces of some time.
    fn pull(&mut self, time: f64) {
        let forces = self.found.1.as_flattened();
        let velocities = self.velocities.as_flattened_mut().iter_mut();
        velocities
            .zip(forces)
            .for_each(|(v, f)| *v += time / MASS * f);
    }

    /// The energy of motion, in eV.
    fn kinetic(&self) -> f64 {
        let squares = self.velocities.as_flattened().iter().map(|v| v * v);
        MASS / 2.0 * squares.sum::<f64>()
    }

    /// The whole energy, in eV.
    pub(super) fn energy(&self) -> f64 {
        self.found.0 + self.kinetic()
    }

    /// The temperature, in kelvin. The crystal as a whole does not move.
    pub(super) fn temperature(&self) -> f64 {
        let freedoms = 3 * (self.velocities.len() - 1);
        2.0 * self.kinetic() / (BOLTZMANN * freedoms as f64)
    }

    /// The atoms as they are now.
    pub(super) fn crystal(&self) -> &Crystal {
        &self.crystal
    }

    /// The energy of the potential now, and the forces.
    pub(super) fn found(&self) -> (f64, &[Vector]) {
        (self.found.0, &self.found.1)
    }

    /// How often neighbours were searched.
    pub(super) fn searches(&self) -> usize {
        self.searches
    }

    /// The edges of the last search.
    pub(super) fn edge_count(&self) -> usize {
        self.neighbours.edges
    }
}

/// Random velocities of twice the temperature, whose mean is 0.
fn velocities(atoms: usize, settings: Settings) -> Vec<Vector> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let spread = (2.0 * BOLTZMANN * settings.temperature / MASS).sqrt();
    let mut normal = || {
        // The method of Box and Muller, whose first number is above 0.
        let (radius, angle) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
        spread * (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
    };
    let mut found: Vec<Vector> = (0..atoms)
        .map(|_| std::array::from_fn(|_| normal()))
        .collect();
    for axis in 0..3 {
        let mean = found.iter().map(|own| own[axis]).sum::<f64>() / atoms as f64;
        found.iter_mut().for_each(|own| own[axis] -= mean);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        time_step: 1.0,
        temperature: 600.0,
        skin: 0.4,
        seed: 3,
    };

    #[test]
    fn velocities_have_twice_the_temperature_and_no_mean() {
        let found = velocities(4000, SETTINGS);
        let squares = found.as_flattened().iter().map(|v| v * v).sum::<f64>();
        let temperature = MASS * squares / (BOLTZMANN * 12_000.0);
        // Four standard deviations.
        assert!(
            (temperature / 1200.0 - 1.0).abs() < 4.0 * (2.0 / 12_000_f64).sqrt(),
            "{temperature}"
        );
        for axis in 0..3 {
            let mean: f64 = found.iter().map(|own| own[axis]).sum();
            assert!(mean.abs() < 1e-9);
        }
        assert_ne!(
            found,
            velocities(
                4000,
                Settings {
                    seed: 4,
                    ..SETTINGS
                }
            )
        );
    }

    /// Femtoseconds in the units of forces and masses: a pull of 1 eV/A moves 1 u by 0.96485 A/fs
    /// in 100 fs.
    #[test]
    fn a_femtosecond_is_what_forces_and_masses_make_it() {
        let (electronvolt, dalton) = (1.602_176_634e-19_f64, 1.660_539_066_6e-27);
        let unit = 1e-10 * (dalton / electronvolt).sqrt();
        assert!((1e-15 / unit / FEMTOSECOND - 1.0).abs() < 1e-7);
    }

    #[test]
    fn neighbours_are_old_when_an_atom_has_moved_by_half_of_the_skin() {
        let mut crystal = Crystal::at_rest([1, 1, 1]);
        let own = Neighbours::search(&crystal, 4.0).unwrap();
        assert_eq!(own.edges, 8 * 16);
        assert!(!own.are_old(&crystal, 0.4));
        crystal.places[5][1] += 0.199;
        assert!(!own.are_old(&crystal, 0.4));
        crystal.places[5][2] -= 0.02;
        assert!(own.are_old(&crystal, 0.4));
    }

    /// A network that has not learned anything conserves its energy too, and the error of a step
    /// falls with its square. The list of neighbours changes nothing.
    #[test]
    fn energy_is_conserved_to_the_square_of_the_step() {
        let model = Model::new(
            flashcliff_candle::models::Architecture::Forces,
            3,
            DType::F64,
        )
        .unwrap();
        let drift = |time_step: f64, skin: f64| {
            let settings = Settings {
                time_step,
                skin,
                ..SETTINGS
            };
            let crystal = Crystal::at_rest([1, 1, 1]);
            let mut own =
                Simulation::start(&model, (&Device::Cpu, DType::F64), crystal, settings).unwrap();
            let start = own.energy();
            let mut drift = 0.0_f64;
            for _ in 0..(32.0 / time_step) as usize {
                own.step().unwrap();
                drift = drift.max((own.energy() - start).abs());
            }
            (drift, own.energy(), own.searches())
        };
        let ((long, ..), (short, end, few)) = (drift(1.0, 0.4), drift(0.5, 0.4));
        assert!(
            long > 1e-7 && (3.0..5.5).contains(&(long / short)),
            "{long} {short}"
        );
        let (_, other, many) = drift(0.5, 0.02);
        assert!(
            many > few && (end - other).abs() < 1e-9,
            "{end} {other}, {few} {many}"
        );
    }
}
