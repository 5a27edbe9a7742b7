//! The model of energies and forces of silicon.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff_network::file::network_to_json;
use flashcliff_network::messages::Potential;
use flashcliff_network::{Rows, Segments};

use super::on_graphs::{OnGraphs, Predicts};
use crate::Error;
use crate::objective::description::{Described, OfGraphs};
use crate::op::graphs::Graphs;
use crate::op::network::{Around, Node};

/// Atoms of a sample: two cubic cells of silicon.
const ATOMS: usize = 16;
/// Sites of a sample: its atoms, and 27 translations of the lattice.
pub(super) const POINTS: usize = ATOMS + 27;
/// Numbers of a site: three coordinates, and whether it is an atom of silicon.
pub(super) const ROW: usize = 4;
/// Numbers of an atom: its force, and the weighted mean energy of an atom.
const NUMBERS: usize = 4;
/// Targets of a sample.
pub(super) const TARGETS: usize = NUMBERS * ATOMS;
/// The factor of the mean energy of an atom among the predictions.
const ENERGY_WEIGHT: f64 = 5.0;
/// The places of the atoms of a cubic cell, in quarters of the lattice constant.
const CORNERS: [[i32; 3]; 8] = [
    [0, 0, 0],
    [0, 2, 2],
    [2, 0, 2],
    [2, 2, 0],
    [1, 1, 1],
    [1, 3, 3],
    [3, 1, 3],
    [3, 3, 1],
];
/// The square of the length of the longest edges, in quarters of the lattice constant: up to the
/// third neighbours. The fourth ones have 16.
const LONGEST: i32 = 11;

/// Forces on the atoms of silicon, and the energy, whose gradient they are. It commutes with
/// rotations and reflections.
///
/// A sample is a crystal of 16 atoms, two cubic cells side by side, that is strained and shaken:
/// the places of its atoms, in Angstrom, and then the translations by -1, 0 and 1 of its lattice
/// vectors, the last one fastest. All samples have the edges of the crystal at rest up to third
/// neighbours, 28 for each atom; those that are longer than the cut-off change nothing.
/// [`ForceField`] has other crystals.
///
/// [`Potential`] describes the network: 16 channels, two layers, named as `nn.Potential` of the
/// Python package.
///
/// Source: as for [`Potential`]; the cut-off is by Stillinger and Weber (Phys. Rev. B 31, 5262,
/// 1985).
#[derive(Clone, Debug)]
pub struct Forces(OnGraphs);

/// The sizes of the network.
fn potential() -> Potential {
    Potential {
        elements: 1,
        cutoff: 1.8 * 2.0951,
        channels: 16,
        layers: 2,
        hidden: 32,
        neighbours: 9.0,
        scale: 2.0,
    }
}

impl Forces {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        let (layers, _, prediction) = potential().with_forces(ENERGY_WEIGHT)?;
        let of = OfGraphs {
            graphs,
            nodes: POINTS,
            numbers: ROW,
            targets: TARGETS,
        };
        let output = (prediction, Predicts::OfOthers(NUMBERS));
        Ok(Self(OnGraphs::new("forces", layers, output, of, &vb)?))
    }

    /// The model as a network, to its prediction and the target.
    pub(super) fn described(&self) -> std::result::Result<Described, Error> {
        self.0.described()
    }

    /// The network from sites to the energy of each structure, as JSON. Hosts have the forces as
    /// its gradient.
    pub(super) fn description(&self) -> std::result::Result<String, Error> {
        let (layers, ends) = potential().layers()?;
        let output = [("output", ends.energies)];
        Ok(network_to_json(&layers.network, &output)?)
    }

    /// Energies and forces of any crystal, with the parameters as they are now.
    pub fn field(&self) -> ForceField {
        ForceField(self.0.frozen())
    }
}

impl Module for Forces {
    /// Forces and weighted energies `[samples, 64]`, four numbers of each atom, of sites `[samples,
    /// 43, 4]`.
    fn forward(&self, sites: &Tensor) -> Result<Tensor> {
        self.0.forward(sites)
    }
}

/// The graphs of so many samples.
fn graphs(samples: usize, _sites: usize) -> std::result::Result<Graphs, Error> {
    let edges = edges();
    of_edges(samples, [ATOMS, POINTS], &edges)
}

/// The edges of a sample: receiver, sender, and the site of the translation.
fn edges() -> Vec<[usize; 3]> {
    let places: Vec<[i32; 3]> = (0..2)
        .flat_map(|cell| CORNERS.map(|[x, y, z]| [x + 4 * cell, y, z]))
        .collect();
    let mut found = Vec::new();
    for (receiver, to) in places.iter().enumerate() {
        for (sender, from) in places.iter().enumerate() {
            for image in 0..POINTS - ATOMS {
                let shift = [image / 9, image / 3 % 3, image % 3];
                let apart = |axis: usize| {
                    let length = if axis == 0 { 8 } else { 4 };
                    from[axis] - to[axis] + length * (shift[axis] as i32 - 1)
                };
                let square: i32 = (0..3).map(|axis| apart(axis).pow(2)).sum();
                if (1..=LONGEST).contains(&square) {
                    found.push([receiver, sender, ATOMS + image]);
                }
            }
        }
    }
    found
}

/// Graphs of equal structures, each with so many atoms, which are its first sites, and sites.
fn of_edges(
    samples: usize,
    [atoms, sites]: [usize; 2],
    edges: &[[usize; 3]],
) -> std::result::Result<Graphs, Error> {
    let repeated = |step: usize, own: &dyn Fn(usize) -> usize, count: usize| -> Vec<usize> {
        let all = (0..samples).map(|sample| sample * step);
        all.flat_map(|first| (0..count).map(move |at| first + own(at)))
            .collect()
    };
    let end = |at: usize, step: usize| repeated(step, &|edge| edges[edge][at], edges.len());
    let segments = vec![
        Segments::new(&end(0, atoms), samples * atoms)?,
        Segments::new(&end(1, atoms), samples * atoms)?,
        Segments::new(&end(2, sites), samples * sites)?,
        Segments::new(&repeated(sites, &|atom| atom, atoms), samples * sites)?,
        Segments::new(&repeated(1, &|_| 0, atoms), samples)?,
    ];
    let rows = Rows {
        edges: samples * edges.len(),
        graphs: samples,
        others: [samples * atoms, 0, 0],
        ..Rows::new(samples, sites)
    };
    Ok(Graphs::new(rows, segments))
}

/// Energies and forces of crystals of any size, by the network of [`Forces`].
#[derive(Debug)]
pub struct ForceField(Node);

/// The edges of a crystal for a [`ForceField`].
#[derive(Clone, Debug)]
pub struct Neighbourhoods {
    graphs: Graphs,
    atoms: usize,
    /// The numbers of sites that are translations: coordinates, and no atom.
    translations: Vec<[f64; ROW]>,
}

impl Neighbourhoods {
    /// The neighbourhoods of a crystal of so many atoms, by edges: receiver, sender, and the number of a translation,
    /// by which the sender is moved. An edge that is longer than the cut-off changes nothing.
    ///
    /// # Errors
    /// [`flashcliff_network::Error::Index`] for an atom or a translation that is not there.
    pub fn new(
        atoms: usize,
        translations: &[[f64; 3]],
        edges: &[[usize; 3]],
    ) -> std::result::Result<Self, Error> {
        let translations = translations.iter().map(|&[x, y, z]| [x, y, z, 0.0]);
        let translations: Vec<[f64; ROW]> = translations.collect();
        let moved = edges.iter().map(|&[to, from, by]| [to, from, atoms + by]);
        let edges: Vec<[usize; 3]> = moved.collect();
        let graphs = of_edges(1, [atoms, atoms + translations.len()], &edges)?;
        Ok(Self {
            graphs,
            atoms,
            translations,
        })
    }
}

impl ForceField {
    /// The distance beyond which atoms do not see each other.
    pub fn cutoff(&self) -> f64 {
        potential().cutoff
    }

    /// The energy of a crystal, and the force on each atom, from the places of its atoms: computed
    /// in the type and on the device of the model, `like` its parameters.
    ///
    /// # Errors
    /// Another number of places; the errors of the core.
    pub fn energy_and_forces(
        &self,
        places: &[[f64; 3]],
        around: &Neighbourhoods,
        (device, dtype): (&Device, DType),
    ) -> std::result::Result<(f64, Vec<[f64; 3]>), Error> {
        if places.len() != around.atoms {
            return Err(Error::Shape {
                tensor: "places".to_owned(),
                expected: format!("[{}, 3]", around.atoms),
                got: vec![places.len(), 3],
            });
        }
        let atoms = places.iter().map(|&[x, y, z]| [x, y, z, 1.0]);
        let sites = atoms.chain(around.translations.iter().copied());
        let numbers: Vec<f64> = sites.flatten().collect();
        let shape = (1, numbers.len() / ROW, 1, ROW);
        let sites = Tensor::from_vec(numbers, shape, &Device::Cpu)?;
        let sites = sites.to_dtype(dtype)?.to_device(device)?;
        let made = self
            .0
            .apply(&[&sites], Some(Around::of_graphs(&around.graphs)))?;
        let made = made.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
        let made = made.flatten_all()?.to_vec1::<f64>()?;
        let count = around.atoms;
        let force = |atom: usize| std::array::from_fn(|axis| made[axis * count + atom]);
        let mean = made.last().copied().unwrap_or(0.0) / ENERGY_WEIGHT;
        Ok((mean * count as f64, (0..count).map(force).collect()))
    }
}
