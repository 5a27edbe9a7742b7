//! `flashcliff dynamics`: simulates silicon with the forces that a network has learned, and
//! measures how well it conserves energy.
//!
//! * `simulation` - atoms that move by the forces of a network, by velocity Verlet.

mod simulation;

use std::path::PathBuf;
use std::time::Instant;

use candle_core::DType;
use clap::{Args, ValueEnum};
use flashcliff_tasks::silicon::{Crystal, ENERGY_AT_REST};
use serde::Serialize;

use crate::device::DeviceArgs;
use crate::error::Error;
use crate::output::{self, Overwrite, grouped, print};
use crate::shell;
use crate::train::{Program, TaskName, Trained, number};

use simulation::{Settings, Simulation};

/// Simulate silicon with trained weights of `forces`, and measure steps a second and how well
/// energy is conserved.
#[derive(Debug, Args)]
#[command(after_help = "\
WEIGHTS is such a file as `eval` accepts. The start is a crystal at rest of cubic cells with eight atoms each, whose atoms have random velocities of twice the
temperature, since half of the energy goes into the potential. Steps are by velocity Verlet, with as many atoms, as much volume and as much energy
from step to step. Neighbours within the cut-off and the skin are searched again when an atom has moved by half of the skin; longer edges change nothing.

The drift is the largest difference of the whole energy from its start, in meV an atom. Forces are derivatives of an energy, so in f64 it is the error of
the time step, which falls with its square; in f32 rounding adds to it. At the end forces are compared with the potential of Stillinger and Weber.")]
pub(crate) struct DynamicsArgs {
    /// File of the weights.
    weights: PathBuf,

    /// Cubic cells along each axis.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    cells: u8,

    /// Steps.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// Time of a step, in femtoseconds.
    #[arg(long, value_name = "FS", default_value_t = 1.0)]
    time_step: f64,

    /// Temperature, in kelvin.
    #[arg(long, value_name = "K", default_value_t = 600.0)]
    temperature: f64,

    /// Distance beyond the cut-off in which neighbours are searched, in Angstrom.
    #[arg(long, value_name = "A", default_value_t = 0.4)]
    skin: f64,

    /// Seed of the velocities.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Type of the numbers of the network.
    #[arg(long, value_name = "TYPE", default_value = "f64")]
    precision: Precision,

    #[command(flatten)]
    device: DeviceArgs,

    /// Also write the results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,
}

/// The type of the numbers of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Precision {
    /// All is f32; the places of atoms and their velocities are f64.
    F32,
    /// All is f64.
    F64,
}

/// The results of a simulation.
#[derive(Debug, Serialize)]
struct Report {
    program: Program,
    #[serde(serialize_with = "output::path")]
    weights: PathBuf,
    atoms: usize,
    steps: u32,
    precision: Precision,
    /// In femtoseconds.
    time_step: f64,
    /// The mean of all steps, in kelvin.
    temperature: f64,
    steps_per_second: f64,
    /// How often neighbours were searched.
    searches: usize,
    /// The edges of the last search.
    edges: usize,
    /// The whole energy at the start, in eV an atom above the crystal at rest by the potential of
    /// Stillinger and Weber.
    energy: f64,
    /// The largest difference from it, in meV an atom.
    drift: f64,
    /// The difference at the end, in meV an atom.
    drift_at_the_end: f64,
    /// The mean absolute error of components of forces at the end, in meV/Angstrom, and of the
    /// energy, in meV an atom.
    force_error: f64,
    energy_error: f64,
}

/// Runs the command.
///
/// # Errors
/// Numbers out of range, weights that cannot be read or do not fit the network, a file that cannot
/// be written, the errors of the device.
pub(crate) fn run(args: &DynamicsArgs) -> Result<(), Error> {
    let positive = [
        ("--time-step", args.time_step),
        ("--temperature", args.temperature),
        ("--skin", args.skin),
    ];
    let fits = |own: f64| own.is_finite() && own > 0.0;
    if let Some((option, got)) = positive.into_iter().find(|(_, own)| !fits(*own)) {
        return Err(Error::OutOfRange {
            option,
            expected: "a positive number".to_owned(),
            got: got.to_string(),
        });
    }
    let create = |path| args.overwrite.create(path);
    let json = args.json.as_deref().map(create).transpose()?;
    let report = Report::measure(args)?;
    if let Some(file) = json {
        file.commit(output::json(&report)?.as_bytes())?;
    }
    print(&report.text())
}

impl Report {
    fn measure(args: &DynamicsArgs) -> Result<Self, Error> {
        let trained = Trained::read(TaskName::Forces, &args.weights)?;
        let device = args.device.open()?;
        let dtype = match args.precision {
            Precision::F32 => DType::F32,
            Precision::F64 => DType::F64,
        };
        let model = trained.model(dtype, &device)?;
        let crystal = Crystal::at_rest([usize::from(args.cells); 3]);
        let settings = Settings {
            time_step: args.time_step,
            temperature: args.temperature,
            skin: args.skin,
            seed: args.seed,
        };
        let mut own = Simulation::start(&model, (&device, dtype), crystal, settings)?;
        let (start, begin) = (own.energy(), Instant::now());
        let (mut drift, mut temperature) = (0.0_f64, 0.0);
        for _ in 0..args.steps {
            own.step()?;
            drift = drift.max((own.energy() - start).abs());
            temperature += own.temperature();
        }
        let seconds = begin.elapsed().as_secs_f64();
        let atoms = own.crystal().places.len();
        let (energy, forces) = own.crystal().energy_and_forces();
        let (found, got) = own.found();
        let pairs = got.as_flattened().iter().zip(forces.as_flattened());
        let apart: f64 = pairs.map(|(x, y)| (x - y).abs()).sum();
        let per_atom = 1e3 / atoms as f64;
        // The network counts from the crystal at rest.
        let true_energy = energy - ENERGY_AT_REST * atoms as f64;
        Ok(Self {
            program: Program::new(args.device.name(), None),
            weights: args.weights.clone(),
            atoms,
            steps: args.steps,
            precision: args.precision,
            time_step: args.time_step,
            temperature: temperature / f64::from(args.steps),
            steps_per_second: f64::from(args.steps) / seconds,
            searches: own.searches(),
            edges: own.edge_count(),
            energy: start / atoms as f64,
            drift: per_atom * drift,
            drift_at_the_end: per_atom * (own.energy() - start),
            force_error: per_atom * apart / 3.0,
            energy_error: per_atom * (found - true_energy).abs(),
        })
    }

    fn text(&self) -> String {
        format!(
            "silicon: {}, {} atoms, {} edges, {} steps of {} fs at {:.0} K\n\
             {:.0} steps a second; {} searches of neighbours\n\
             whole energy: within {} meV an atom, {} at the end\n\
             at the end, beside Stillinger and Weber: forces {} meV/A, energy {} meV an atom\n",
            shell::word(&self.weights),
            grouped(self.atoms),
            grouped(self.edges),
            grouped(self.steps as usize),
            self.time_step,
            self.temperature,
            self.steps_per_second,
            grouped(self.searches),
            number(self.drift),
            number(self.drift_at_the_end),
            number(self.force_error),
            number(self.energy_error),
        )
    }
}
