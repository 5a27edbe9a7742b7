//! CGENN's network of charged bodies.

use std::ops::RangeInclusive;

use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, GradeSet, ProductKind, Signature};

use super::layers::{Form, Map};
use super::{Attributes, Convolution, MessageLayers, Neighbours};
use crate::relation::{Reduction, Relation};
use crate::{Axis, Error, Network, Value};

/// The dimensions of space that there are networks for.
const DIMENSIONS: RangeInclusive<usize> = 2..=Signature::MAX_DIM;

/// The sizes of CGENN's network for the motion of charged bodies in space. It commutes with rotations, reflections and translations.
/// Its algebra is Cl(dim, 0, 0).
///
/// A linear map of three channels (the charge as a scalar, the position from the centre of the graph and the velocity
/// as vectors), layers of messages with the product of both charges, and a linear map to one channel, whose vector is
/// added to the position. 134,625 parameters with 28 channels and three layers.
///
/// In five dimensions it is the baseline of GLGENN, with 210,113 parameters.
///
/// Source: CGENN, its n-body experiment (arXiv 2305.11141, section 5); GLGENN (arXiv 2506.09625).
///
/// ```
/// use flashcliff_network::messages::Bodies;
///
/// let (layers, ends) = Bodies::default().layers()?;
/// let axes = layers.network.shape(ends.positions).unwrap_or_default();
/// assert_eq!(axes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["3", "rows", "1"]);
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bodies {
    /// The dimension of space, from 2 to [`Signature::MAX_DIM`]. Default: 3.
    pub dim: usize,
    /// The channels of nodes. Default: 28.
    pub channels: usize,
    /// The layers of messages. Default: 3.
    pub layers: usize,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            dim: 3,
            channels: 28,
            layers: 3,
        }
    }
}

/// The values at the ends of a network of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyEnds {
    /// The input `[nodes, 1, 1 + 2 dim]`: charge, position and velocity of each body.
    pub bodies: Value,
    /// The bodies that edges bring messages to, and come from: the first two relations.
    pub neighbours: Neighbours,
    /// The graph of each body: the third relation.
    pub graphs: Relation,
    /// The output `[dim, nodes, 1]`: positions afterwards.
    pub positions: Value,
}

impl Bodies {
    /// The network with its layers, each layer of messages as a separate [block](Network::block), and its ends.
    ///
    /// # Errors
    /// [`Error::Option`] for a dimension out of its range; the errors of the nodes.
    pub fn layers(&self) -> Result<(MessageLayers, BodyEnds), Error> {
        let (mut layers, inputs) = BodyInputs::new(self.dim)?;
        let (network, neighbours) = (&mut layers.network, inputs.neighbours);
        let centre = inputs.centre(network)?;
        let from_centre = from(network, inputs.positions, centre)?;
        let products = products_of_ends(&mut layers, inputs.charges, &neighbours)?;
        let map = layers.map("embedding", [3, self.channels], false);
        let (charges, vectors) = (inputs.charges, [from_centre, inputs.velocities]);
        let mut h = embedded(&mut layers, &map, (charges, vectors), First::Charge)?;
        let scalars = Attributes {
            edges: Some(products),
            ..Attributes::default()
        };
        let options = Convolution {
            edge_scalars: 1,
            ..Convolution::new(self.channels)
        };
        for layer in 0..self.layers {
            layers.network.block();
            let prefix = format!("layers.{layer}");
            let beside = (&neighbours, scalars);
            h = layers.convolution(&prefix, h, beside, &options)?;
        }
        layers.network.block();
        let out = layers.linear("projection.0", h, [self.channels, 1], true)?;
        let ends = inputs.moved(&mut layers, out, inputs.positions)?;
        Ok((layers, ends))
    }
}

/// The beginning of networks of bodies: their input and relations, and the numbers of bodies apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyInputs {
    dim: usize,
    bodies: Value,
    pub(super) neighbours: Neighbours,
    graphs: Relation,
    /// `[1, nodes, 1]`.
    pub(super) charges: Value,
    /// `[dim, nodes, 1]`, as velocities.
    pub(super) positions: Value,
    pub(super) velocities: Value,
}

impl BodyInputs {
    /// The beginning of a network over the algebra of a space of so many dimensions.
    ///
    /// # Errors
    /// [`Error::Option`] for a dimension out of its range.
    pub(super) fn new(dim: usize) -> Result<(MessageLayers, Self), Error> {
        let mut layers = of_space(dim)?;
        let network = &mut layers.network;
        let (neighbours, graphs) = Neighbours::in_graphs(network)?;
        let axes = [Axis::Rows, Axis::Fixed(1), Axis::Fixed(1 + 2 * dim)];
        let bodies = network.input("bodies", &axes);
        // Behind a zero the numbers of bodies, each as points have their coordinates.
        let numbers = network.points(bodies)?;
        let parts = network.split(numbers, 0, &[1, 1, dim, dim])?;
        let inputs = Self {
            dim,
            bodies,
            neighbours,
            graphs,
            charges: parts[1],
            positions: parts[2],
            velocities: parts[3],
        };
        Ok((layers, inputs))
    }

    /// The centre of the graph of each body.
    pub(super) fn centre(&self, network: &mut Network) -> Result<Value, Error> {
        centre(network, self.positions, self.graphs)
    }

    /// The ends of a network that moves bodies from some positions by the vectors of `[blades,
    /// nodes, 1]`.
    pub(super) fn moved(
        &self,
        layers: &mut MessageLayers,
        out: Value,
        from: Value,
    ) -> Result<BodyEnds, Error> {
        let others = layers.algebra().blade_count() - 1 - self.dim;
        let network = &mut layers.network;
        // The scalar, the vector, and all else.
        let way = network.split(out, 0, &[1, self.dim, others])?[1];
        Ok(BodyEnds {
            bodies: self.bodies,
            neighbours: self.neighbours,
            graphs: self.graphs,
            positions: sum_of_halves(network, [from, way])?,
        })
    }
}

/// A network without layers over the algebra of a space of so many dimensions.
///
/// # Errors
/// [`Error::Option`] for a dimension out of its range.
pub(super) fn of_space(dim: usize) -> Result<MessageLayers, Error> {
    if !DIMENSIONS.contains(&dim) {
        return Err(Error::Option {
            option: "dim",
            expected: "a dimension of space from 2 to 8",
            got: dim as f64,
        });
    }
    Ok(MessageLayers::new(Algebra::new(Signature::of(dim, 0, 0))?))
}

/// The first of the channels that a network of bodies begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    Charge,
    Vectors,
}

/// The first linear map, of a scalar and two vectors: one matrix for all grades, of which no other is there.
pub(super) fn embedded(
    layers: &mut MessageLayers,
    map: &Map,
    (charges, vectors): (Value, [Value; 2]),
    first: First,
) -> Result<Value, Error> {
    let (algebra, network) = (layers.algebra(), &mut layers.network);
    let [of_scalars, of_vectors] = match first {
        First::Charge => [0, 1],
        First::Vectors => [1, 0],
    };
    let sizes = [[1, 2], [2, 1]][of_scalars];
    let columns = network.split(map.weight, 1, &sizes)?;
    let [of_scalars, of_vectors] = [of_scalars, of_vectors].map(|own| columns[own]);
    let vectors = network.join(&vectors, 2)?;
    let options = LinearOptions::default()
        .with_per_grade(false)
        .with_bias(Bias::None)
        .with_grades(GradeSet::single(1));
    let vectors = network.operator(&ops::mv_linear(algebra, &options)?, &[vectors, of_vectors])?;
    let own = Map {
        weight: of_scalars,
        form: Form::Scalars,
        ..*map
    };
    let scalars = layers.mapped(charges, &own)?;
    let network = &mut layers.network;
    let both = network.join(&[scalars, vectors], 0)?;
    network.extend_blades(both, algebra.blade_count())
}

/// The sum of two values as half the sum of their doubles, which are exact. The gradient of a plain sum is that of
/// its values where it lies, in the type of the prediction; this one is computed, in the type of each value.
fn sum_of_halves(network: &mut Network, values: [Value; 2]) -> Result<Value, Error> {
    let [a, b] = values.map(|own| network.scaled_sum([own, own], 1.0));
    network.scaled_sum([a?, b?], 0.5)
}

/// Positions less the mean position of their graph.
pub(super) fn from_centre(
    network: &mut Network,
    positions: Value,
    graphs: Relation,
) -> Result<Value, Error> {
    let centre = centre(network, positions, graphs)?;
    from(network, positions, centre)
}

/// For each position, the mean position of its graph.
fn centre(network: &mut Network, positions: Value, graphs: Relation) -> Result<Value, Error> {
    let mean = network.segment_sum(positions, graphs, Reduction::Mean)?;
    network.gather(mean, graphs)
}

/// Positions less that of a centre.
pub(super) fn from(network: &mut Network, positions: Value, centre: Value) -> Result<Value, Error> {
    let minus = network.scaled_sum([centre, centre], -0.5)?;
    network.scaled_sum([positions, minus], 1.0)
}

/// For each edge the product of the scalars of its ends.
fn products_of_ends(
    layers: &mut MessageLayers,
    x: Value,
    neighbours: &Neighbours,
) -> Result<Value, Error> {
    let scalars = Some(GradeSet::single(0));
    let product = ops::product(layers.algebra(), ProductKind::Geometric, scalars, scalars)?;
    let network = &mut layers.network;
    let ends = [neighbours.receivers, neighbours.senders];
    let [a, b] = ends.map(|own| network.gather(x, own));
    network.operator(&product, &[a?, b?])
}
