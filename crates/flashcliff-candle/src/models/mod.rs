//! CGENN's invariant models of point sets and its model of charged bodies, CSMPN's model of hulls, GATr and its model of gravity, models of
//! flashcliff for two of these tasks and for forces of atoms, and one type that trains them all.

mod affine;
mod bodies;
mod forces;
mod gatr;
mod gravity;
mod hulls;
mod invariants;
mod on_graphs;
mod regression;
mod simplices;
mod volumes;

use std::path::Path;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff_network::Value;
use flashcliff_network::file::network_to_json;
use flashcliff_network::messages::MessageLayers;
use flashcliff_network::tokens::Start;

pub use affine::AffineHulls;
pub use bodies::Bodies;
pub use forces::{ForceField, Forces, Neighbourhoods};
pub use gatr::{Gatr, GatrOptions};
pub use gravity::Gravity;
pub use hulls::Hulls;
pub use invariants::Invariants;
pub use regression::Regression;
pub use simplices::SimplicialHulls;
pub use volumes::Volumes;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::choices;
use crate::init::{Parameters, started};
use crate::layers::transformer::Draw;
use crate::objective::description::{Described, Description};

/// A network, with its free sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// [`Hulls`]: the volume of the convex hull of 16 points in 5 dimensions.
    Hulls,
    /// [`AffineHulls`]: the same volume, from a network that follows every affine map.
    AffineHulls,
    /// [`Invariants`]: an invariant function of two vectors in 5 dimensions, from all their invariants.
    Invariants,
    /// [`Regression`]: an invariant function of two vectors in 5 dimensions.
    Regression {
        /// Width of the two hidden layers of the perceptron: 580 in CGENN.
        width: usize,
    },
    /// [`Volumes`]: the signed volume of three vectors in 3 dimensions.
    Volumes,
    /// [`Gravity`]: the positions of four bodies after some time.
    Gravity,
    /// [`Bodies`]: the positions of five charged bodies after some time.
    Bodies,
    /// [`Bodies`] in five dimensions: [`Bodies::in_space`].
    Bodies5d,
    /// [`SimplicialHulls`]: the volume of the convex hull of 8 points in 5 dimensions, on its simplicial complex.
    SimplicialHulls,
    /// [`Forces`]: the forces on 16 atoms of silicon, and their energy.
    Forces,
}

/// Options of a [`Model`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelOptions {
    /// The probability of dropout of grades in the blocks of [`Gravity`], see [`Gravity::with_dropout`]. `None` for
    /// none, the default. No other network has dropout.
    pub dropout: Option<f64>,
}

/// The weight of the regulariser of [`Gravity`], as in GATr's n-body experiment.
const REGULARISER: f64 = 0.01;

/// The losses of a batch that a step of training needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Losses {
    /// The loss to minimise.
    pub objective: Tensor,
    /// The mean squared error of the predictions. It is the objective too, but for [`Architecture::Gravity`], whose
    /// objective adds 0.01 times the regulariser.
    pub error: Tensor,
}

impl Architecture {
    /// The name, the points of a sample, the numbers of a point, and the predictions of a sample.
    const fn facts(self) -> (&'static str, [usize; 3]) {
        match self {
            Self::Hulls => ("hulls", [hulls::POINTS, 5, 1]),
            Self::AffineHulls => ("affine-hulls", [hulls::POINTS, 5, 1]),
            Self::Invariants => ("invariants", [regression::POINTS, 5, 1]),
            Self::Regression { .. } => ("regression", [regression::POINTS, 5, 1]),
            Self::Volumes => ("volumes", [volumes::POINTS, 3, 1]),
            Self::Gravity => ("gravity", [gravity::POINTS, gravity::ROW, gravity::TARGETS]),
            Self::Bodies => (
                "nbody",
                [bodies::POINTS, bodies::row(3), bodies::targets(3)],
            ),
            Self::Bodies5d => (
                "nbody5d",
                [bodies::POINTS, bodies::row(5), bodies::targets(5)],
            ),
            Self::SimplicialHulls => ("csmpn-hulls", [simplices::POINTS, simplices::ROW, 1]),
            Self::Forces => ("forces", [forces::POINTS, forces::ROW, forces::TARGETS]),
        }
    }

    /// A short name: `hulls`, `affine-hulls`, `invariants`, `regression`, `volumes`, `gravity`, `nbody`, `nbody5d`,
    /// `csmpn-hulls`, `forces`.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Points per sample.
    pub fn points(self) -> usize {
        self.facts().1[0]
    }

    /// Dimension of a point: the numbers of a row of a sample.
    pub fn dim(self) -> usize {
        self.facts().1[1]
    }

    /// Predictions per sample.
    pub fn targets(self) -> usize {
        self.facts().1[2]
    }

    /// The shapes of a batch of so many rows: points, and targets.
    pub fn shapes(self, rows: usize) -> [Vec<usize>; 2] {
        let (_, [points, dim, targets]) = self.facts();
        let targets = match targets {
            1 => vec![rows],
            _ => vec![rows, targets],
        };
        [vec![rows, points, dim], targets]
    }

    /// Whether its training steps are computed in buffers that are taken once, without candle's graph:
    /// [`Objective::is_planned`](crate::objective::Objective::is_planned).
    pub fn has_plan(self) -> bool {
        self != Self::Gravity
    }

    /// Whether its features may have 16 bits. Forces are derivatives of an energy, so they need the
    /// type of the model.
    pub fn has_half_features(self) -> bool {
        self.has_plan() && self != Self::Forces
    }

    /// Whether it can have [dropout](ModelOptions::dropout).
    pub fn has_dropout(self) -> bool {
        self == Self::Gravity
    }
}

#[derive(Debug, Clone)]
enum Network {
    Hulls(Hulls),
    AffineHulls(AffineHulls),
    Invariants(Invariants),
    Regression(Regression),
    Volumes(Volumes),
    Gravity(Gravity),
    Bodies(Bodies),
    SimplicialHulls(SimplicialHulls),
    Forces(Forces),
}

/// A network and its parameters.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff_candle::models::{Architecture, Model};
///
/// let model = Model::new(Architecture::Volumes, 1, DType::F32)?;
/// assert_eq!(model.parameters().element_count(), 48_913);
/// let points = Tensor::zeros((4, 3, 3), DType::F32, &Device::Cpu)?;
/// assert_eq!(model.forward(&points)?.dims(), [4]);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Model {
    architecture: Architecture,
    network: Network,
    parameters: Parameters,
    dtype: DType,
}

impl Model {
    /// A fresh model on the CPU: a function of architecture, seed and type.
    ///
    /// # Errors
    /// The errors of the core and of candle.
    pub fn new(
        architecture: Architecture,
        seed: u64,
        dtype: DType,
    ) -> std::result::Result<Self, Error> {
        Self::on_device(architecture, seed, dtype, &Device::Cpu)
    }

    /// A fresh model with the same parameters on a device; [`crate::device::cuda`] gives a GPU.
    ///
    /// # Errors
    /// The errors of the core and of candle.
    pub fn on_device(
        architecture: Architecture,
        seed: u64,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, Error> {
        Self::with_options(architecture, ModelOptions::default(), seed, dtype, device)
    }

    /// Does the same as [`Self::on_device`], with options.
    ///
    /// # Errors
    /// [`Error::Option`] for a dropout that the network does not have or that is not a probability, and the errors of [`Self::on_device`].
    pub fn with_options(
        architecture: Architecture,
        options: ModelOptions,
        seed: u64,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, Error> {
        let dropout = options.dropout;
        if let (Some(got), false) = (dropout, architecture.has_dropout()) {
            return Err(Error::Option {
                option: "dropout",
                expected: "none, because the network has no dropout",
                got,
            });
        }
        let parameters = Parameters::seeded(seed);
        let vb: VarBuilder = parameters.builder(dtype, device);
        let network = match architecture {
            Architecture::Hulls => Network::Hulls(Hulls::new(vb)?),
            Architecture::AffineHulls => Network::AffineHulls(AffineHulls::new(vb)?),
            Architecture::Invariants => Network::Invariants(Invariants::new(vb)?),
            Architecture::Regression { width } => Network::Regression(Regression::new(width, vb)?),
            Architecture::Volumes => Network::Volumes(Volumes::new(vb)?),
            Architecture::Gravity => Network::Gravity(Gravity::with_dropout(dropout, vb)?),
            Architecture::Bodies => Network::Bodies(Bodies::new(vb)?),
            Architecture::Bodies5d => Network::Bodies(Bodies::in_space(5, vb)?),
            Architecture::SimplicialHulls => Network::SimplicialHulls(SimplicialHulls::new(vb)?),
            Architecture::Forces => Network::Forces(Forces::new(vb)?),
        };
        Ok(Self {
            architecture,
            network,
            parameters,
            dtype,
        })
    }

    /// The kind of network.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The parameters, in the order of their creation.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Predictions for points `[batch, points, dim]`, on the device of the model: `[batch]`, or `[batch, targets]` where there are several.
    ///
    /// # Errors
    /// Points of another shape or type.
    pub fn forward(&self, points: &Tensor) -> Result<Tensor> {
        self.check(points)?;
        match &self.network {
            Network::Hulls(network) => network.forward(points),
            Network::AffineHulls(network) => network.forward(points),
            Network::Invariants(network) => network.forward(points),
            Network::Regression(network) => network.forward(points),
            Network::Volumes(network) => network.forward(points),
            Network::Gravity(network) => network.forward(points),
            Network::Bodies(network) => network.forward(points),
            Network::SimplicialHulls(network) => network.forward(points),
            Network::Forces(network) => network.forward(points),
        }
    }

    /// The losses of points and their targets, which have the shape of predictions. A network with dropout drops grades if there are random
    /// numbers; others do not look at them.
    ///
    /// # Errors
    /// Points or targets of another shape or type; random numbers on another device.
    pub fn losses(&self, points: &Tensor, targets: &Tensor, draw: Option<&Draw>) -> Result<Losses> {
        let (predictions, regulariser) = match &self.network {
            Network::Gravity(network) => {
                self.check(points)?;
                let (predictions, regulariser) = network.forward_regularised(points, draw)?;
                (predictions, Some(regulariser))
            }
            _ => (self.forward(points)?, None),
        };
        let error = (predictions - targets)?.sqr()?.mean_all()?;
        let objective = match regulariser {
            None => error.clone(),
            Some(regulariser) => (&error + regulariser.affine(REGULARISER, 0.0)?)?,
        };
        Ok(Losses { objective, error })
    }

    /// Checks the shape and the type of points.
    fn check(&self, points: &Tensor) -> Result<()> {
        let (count, dim) = (self.architecture.points(), self.architecture.dim());
        if !matches!(*points.dims(), [_, c, d] if c == count && d == dim) {
            return Err(Error::Shape {
                tensor: "points".to_owned(),
                expected: format!("[batch, {count}, {dim}]"),
                got: points.dims().to_vec(),
            }
            .into());
        }
        if points.dtype() != self.dtype {
            return Err(Error::TensorType {
                tensor: "points".to_owned(),
                expected: match self.dtype {
                    DType::F32 => "F32, that of the model",
                    DType::F64 => "F64, that of the model",
                    _ => "that of the model",
                },
                got: points.dtype(),
            }
            .into());
        }
        Ok(())
    }

    /// The network as a graph, if it is one: see [`Architecture::has_plan`].
    pub(crate) fn network(&self) -> std::result::Result<Option<Described>, Error> {
        let mut description = Description::new(&self.parameters);
        let prediction = match &self.network {
            Network::Hulls(network) => network.describe(&mut description),
            Network::Invariants(network) => network.describe(&mut description),
            Network::AffineHulls(network) => return network.described().map(Some),
            Network::Regression(network) => network.describe(&mut description),
            Network::Volumes(network) => network.describe(&mut description),
            Network::Bodies(network) => return network.described().map(Some),
            Network::SimplicialHulls(network) => return network.described().map(Some),
            Network::Forces(network) => return network.described().map(Some),
            Network::Gravity(_) => return Ok(None),
        };
        Ok(Some(description.finish(prediction?)))
    }

    /// The network from points to predictions, `output`, as JSON: what a file has beside the weights, so that [`flashcliff_network::file`]
    /// and with it all hosts open it. That of gravity is its transformer, from tokens to tokens:
    /// see [`Gravity`]. That of forces gives energies, whose gradient they are.
    ///
    /// # Errors
    /// The errors of the description.
    pub fn description(&self) -> std::result::Result<String, Error> {
        match &self.network {
            Network::Gravity(network) => return network.description(),
            Network::Forces(network) => return network.description(),
            _ => {}
        }
        let network = self.network()?;
        let own = network.expect("all networks but that of gravity are graphs");
        Ok(network_to_json(&own.network, &[("output", own.ends[0])])?)
    }

    /// Energies and forces of crystals of any size, with the parameters as they are now; `None` for
    /// a model without forces.
    pub fn force_field(&self) -> Option<ForceField> {
        match &self.network {
            Network::Forces(network) => Some(network.field()),
            _ => None,
        }
    }

    /// The same model, sharing the parameters, whose blocks run again in the backward pass of candle's graph.
    /// Networks that have a plan are as before.
    pub(crate) fn recomputing(&self) -> Self {
        let mut model = self.clone();
        if let Network::Gravity(network) = model.network {
            model.network = Network::Gravity(network.with_gradient_checkpointing(true));
        }
        model
    }

    /// Adds the parameters to a checkpoint, under `{prefix}{name}`, with the algebra and the norm of each layer.
    pub fn export(&self, prefix: &str, checkpoint: &mut Checkpoint) {
        self.parameters.export(prefix, checkpoint);
    }

    /// Takes the parameters out of a checkpoint that [`Model::export`] filled.
    ///
    /// # Errors
    /// The errors of [`Parameters::restore`]. Nothing is then changed.
    pub fn import(&self, prefix: &str, checkpoint: &Checkpoint) -> std::result::Result<(), Error> {
        self.parameters.restore(prefix, checkpoint)
    }

    /// Writes the parameters to a file, under PyTorch's names, with the [description](Model::description) of the network.
    ///
    /// # Errors
    /// [`Error::Write`]; the errors of the description.
    pub fn save(&self, path: impl AsRef<Path>) -> std::result::Result<(), Error> {
        let mut checkpoint = Checkpoint::new();
        self.export("", &mut checkpoint);
        checkpoint.set_network(self.description()?);
        checkpoint.save(path)
    }

    /// Reads the parameters from a file.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::load`] and [`Model::import`]. Nothing is then changed.
    pub fn load(&self, path: impl AsRef<Path>) -> std::result::Result<(), Error> {
        self.import("", &Checkpoint::load(path)?)
    }
}

/// The parameters of a network of messages, by name, shape and start.
fn parameters_of(
    layers: &MessageLayers,
    vb: &VarBuilder,
) -> std::result::Result<Vec<Tensor>, Error> {
    choices::note_algebra(vb, layers.algebra());
    let own = layers.network.parameters().iter();
    let own = own.zip(layers.starts().iter().zip(layers.stored_shapes()));
    let make = |(&value, (begin, shape)): (&Value, (&Start, &Vec<usize>))| {
        let name = layers.network.name(value);
        started(vb, shape, name, begin)
    };
    Ok(own.map(make).collect::<Result<_>>()?)
}
