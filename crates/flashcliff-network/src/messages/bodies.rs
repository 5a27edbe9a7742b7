//! CGENN's network of charged bodies.

use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, GradeSet, ProductKind, Signature};

use super::{Attributes, Convolution, MessageLayers, Neighbours};
use crate::relation::{Reduction, Relation};
use crate::{Axis, Error, Network, Value};

/// The numbers of a body: its charge, its position, its velocity.
const NUMBERS: usize = 7;

/// The sizes of CGENN's network for the motion of charged bodies in space. It commutes with rotations, reflections and translations.
///
/// A linear map of three channels (the charge as a scalar, the position from the centre of the graph and the velocity as vectors), layers of messages with the
/// product of both charges, and a linear map to one channel, whose vector is added to the position. 134,625 parameters with 28 channels and three layers.
///
/// Source: CGENN, its n-body experiment (arXiv 2305.11141, section 5).
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
    /// The channels of nodes. Default: 28.
    pub channels: usize,
    /// The layers of messages. Default: 3.
    pub layers: usize,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            channels: 28,
            layers: 3,
        }
    }
}

/// The values at the ends of a network of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyEnds {
    /// The input `[nodes, 1, 7]`: charge, position and velocity of each body.
    pub bodies: Value,
    /// The bodies that edges bring messages to, and come from: the first two relations.
    pub neighbours: Neighbours,
    /// The graph of each body: the third relation.
    pub graphs: Relation,
    /// The output `[3, nodes, 1]`: positions afterwards.
    pub positions: Value,
}

impl Bodies {
    /// The network with its layers, each layer of messages as a [block](Network::block) of its own, and its ends.
    ///
    /// # Errors
    /// The errors of the nodes.
    pub fn layers(&self) -> Result<(MessageLayers, BodyEnds), Error> {
        let algebra = Algebra::new(Signature::of(3, 0, 0))?;
        let mut layers = MessageLayers::new(algebra);
        let network = &mut layers.network;
        let neighbours = Neighbours {
            receivers: network.relation("receivers", Axis::Edges, Axis::Rows)?,
            senders: network.relation("senders", Axis::Edges, Axis::Rows)?,
        };
        let graphs = network.relation("graphs", Axis::Rows, Axis::Graphs)?;
        let axes = [Axis::Rows, Axis::Fixed(1), Axis::Fixed(NUMBERS)];
        let bodies = network.input("bodies", &axes);
        let [charges, positions, velocities] = parts(network, bodies)?;
        let from_centre = from_centre(network, positions, graphs)?;
        let products = products_of_ends(network, algebra, charges, &neighbours)?;
        let mut h = self.embedding(&mut layers, charges, [from_centre, velocities])?;
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
        // The scalar, the vector, and all else.
        let way = layers.network.split(out, 0, &[1, 3, 4])?[1];
        let positions = sum_of_halves(&mut layers.network, [positions, way])?;
        let ends = BodyEnds {
            bodies,
            neighbours,
            graphs,
            positions,
        };
        Ok((layers, ends))
    }

    /// The first linear map, of a scalar and two vectors: one matrix for all grades, of which no other is there.
    fn embedding(
        &self,
        layers: &mut MessageLayers,
        charges: Value,
        vectors: [Value; 2],
    ) -> Result<Value, Error> {
        let (algebra, prefix) = (layers.algebra(), "embedding");
        let weight = layers.weight(prefix, [3, self.channels], false);
        let bias = layers.bias(prefix, self.channels);
        let network = &mut layers.network;
        let columns = network.split(weight, 1, &[1, 2])?;
        let of_grade = |grade, bias| {
            let options = LinearOptions::default()
                .with_per_grade(false)
                .with_bias(bias)
                .with_grades(GradeSet::single(grade));
            ops::mv_linear(algebra, &options)
        };
        let scalars = of_grade(0, Bias::Scalar)?;
        let scalars = network.operator(&scalars, &[charges, columns[0], bias])?;
        let vectors = network.join(&vectors, 2)?;
        let vectors = network.operator(&of_grade(1, Bias::None)?, &[vectors, columns[1]])?;
        let both = network.join(&[scalars, vectors], 0)?;
        network.extend_blades(both, algebra.blade_count())
    }
}

/// The sum of two values as half the sum of their doubles, which are exact. The gradient of a plain sum is that of its values where it lies, in the type of the
/// prediction; this one is computed, in the type of each value.
fn sum_of_halves(network: &mut Network, values: [Value; 2]) -> Result<Value, Error> {
    let [a, b] = values.map(|own| network.scaled_sum([own, own], 1.0));
    network.scaled_sum([a?, b?], 0.5)
}

/// Charges `[1, nodes, 1]`, positions and velocities `[3, nodes, 1]`.
fn parts(network: &mut Network, bodies: Value) -> Result<[Value; 3], Error> {
    // Behind a zero the numbers of bodies, each as points have their coordinates.
    let numbers = network.points(bodies)?;
    let parts = network.split(numbers, 0, &[1, 1, 3, 3])?;
    Ok([parts[1], parts[2], parts[3]])
}

/// Positions less the mean of those of their graph.
pub(super) fn from_centre(
    network: &mut Network,
    positions: Value,
    graphs: Relation,
) -> Result<Value, Error> {
    let mean = network.segment_sum(positions, graphs, Reduction::Mean)?;
    let mean = network.gather(mean, graphs)?;
    let minus = network.scaled_sum([mean, mean], -0.5)?;
    network.scaled_sum([positions, minus], 1.0)
}

/// For each edge the product of the scalars of its ends.
fn products_of_ends(
    network: &mut Network,
    algebra: Algebra,
    x: Value,
    neighbours: &Neighbours,
) -> Result<Value, Error> {
    let scalars = Some(GradeSet::single(0));
    let product = ops::product(algebra, ProductKind::Geometric, scalars, scalars)?;
    let ends = [neighbours.receivers, neighbours.senders];
    let [a, b] = ends.map(|own| network.gather(x, own));
    network.operator(&product, &[a?, b?])
}
