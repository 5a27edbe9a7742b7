//! The models of charged bodies.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff_network::messages::{self, BodyEnds, MessageLayers};

use super::on_graphs::{OnGraphs, Predicts};
use crate::Error;
use crate::objective::description::{Described, OfGraphs};
use crate::op::graphs::Graphs;

/// Bodies of a sample.
pub(super) const POINTS: usize = 5;

/// Numbers of a body: charge, position, velocity.
pub(super) const fn row(dim: usize) -> usize {
    1 + 2 * dim
}

/// Numbers of a target: a position for each body.
pub(super) const fn targets(dim: usize) -> usize {
    dim * POINTS
}

/// Where charged bodies are after some time, from their charges, positions and velocities. It commutes with
/// rotations, reflections and translations.
///
/// Bodies are the nodes of complete graphs, of which each sample is one. [`messages::Bodies`] describes the network:
/// 28 channels, three layers of messages, 134,625 parameters, named as in CGENN; in five dimensions 210,113.
/// [`messages::MultivectorNeurons`] is MVN's in its place, of 144,657 parameters, named as there.
///
/// Source: CGENN, its n-body experiment (arXiv 2305.11141, section 5); MVN (arXiv 2406.04052); the
/// task is that of EGNN (arXiv 2102.09844), in five dimensions that of GLGENN (arXiv 2506.09625).
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use candle_nn::{VarBuilder, VarMap};
/// use flashcliff_candle::models::Bodies;
///
/// let parameters = VarMap::new();
/// let vb = VarBuilder::from_varmap(&parameters, DType::F32, &Device::Cpu);
/// let model = Bodies::with_neurons(vb)?;
/// let bodies = Tensor::ones((2, 5, 7), DType::F32, &Device::Cpu)?;
/// assert_eq!(model.forward(&bodies)?.dims(), [2, 15]);
/// let counts = parameters.all_vars().iter().map(|own| own.elem_count()).sum::<usize>();
/// assert_eq!(counts, 144_657);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bodies(OnGraphs);

impl Bodies {
    /// CGENN's model in three dimensions with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        Self::in_space(3, vb)
    }

    /// CGENN's model in a space of so many dimensions, from 2 to 8, with parameters from `vb`.
    ///
    /// # Errors
    /// [`flashcliff_network::Error::Option`] for another dimension; the errors of the core and of
    /// the builder.
    pub fn in_space(dim: usize, vb: VarBuilder) -> std::result::Result<Self, Error> {
        let options = messages::Bodies {
            dim,
            ..messages::Bodies::default()
        };
        Self::of(options.layers()?, dim, &vb)
    }

    /// MVN's model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn with_neurons(vb: VarBuilder) -> std::result::Result<Self, Error> {
        Self::of(messages::MultivectorNeurons::default().layers()?, 3, &vb)
    }

    fn of(
        (layers, ends): (MessageLayers, BodyEnds),
        dim: usize,
        vb: &VarBuilder,
    ) -> std::result::Result<Self, Error> {
        let graphs = OfGraphs {
            graphs: Graphs::complete,
            nodes: POINTS,
            numbers: row(dim),
            targets: targets(dim),
        };
        let output = (ends.positions, Predicts::Vectors(dim));
        Ok(Self(OnGraphs::new("bodies", layers, output, graphs, vb)?))
    }

    /// The model as a network, to its prediction and the target.
    pub(super) fn described(&self) -> std::result::Result<Described, Error> {
        self.0.described()
    }
}

impl Module for Bodies {
    /// Positions `[samples, 5 dim]`, the coordinates of each body, of bodies `[samples, 5, 1 + 2
    /// dim]`.
    fn forward(&self, bodies: &Tensor) -> Result<Tensor> {
        self.0.forward(bodies)
    }
}
