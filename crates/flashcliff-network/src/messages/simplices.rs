//! CSMPN's network on simplicial complexes.

use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, GradeSet, Signature};

use super::bodies::from_centre;
use super::{Attributes, Convolution, MessageLayers, Neighbours};
use crate::relation::{Reduction, Relation};
use crate::{Axis, Error, Network, Rows, Value};

/// The dimensions of simplices: vertices, edges and triangles.
pub const DIMENSIONS: usize = Rows::MOST_OTHERS;

/// The sizes of CSMPN's network for the volume of a convex hull, on the simplicial complex of the hull. It does not
/// change under rotations, reflections and translations.
///
/// Simplices are the nodes of a graph. Their features come from the features of their corners in every order: by a
/// linear map for a vertex, by a perceptron of one layer for an edge and of two layers for a triangle, summed over the
/// orders. All simplices share the layers of messages, which read the dimensions of both ends of an edge of the graph
/// as scalars, and the dimension of a node. The prediction is the mean over simplices of the scalar of a linear map.
/// 254,325 parameters in five dimensions, with 28 channels and three layers.
///
/// The orders of the corners of all simplices of a dimension are [a set of rows](Axis::Others) with its number.
///
/// Source: CSMPN, its experiment with convex hulls (arXiv 2402.10011), with the names of its state dict. A linear map
/// `readout` there has no part in results, and is left out here.
///
/// ```
/// use flashcliff_network::messages::SimplicialHulls;
///
/// let (layers, ends) = SimplicialHulls::default().layers()?;
/// let axes = layers.network.shape(ends.volumes).unwrap_or_default();
/// assert_eq!(axes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1", "graphs", "1"]);
/// # Ok::<(), flashcliff_network::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimplicialHulls {
    /// The dimension of space. Default: 5.
    pub dimension: usize,
    /// The channels of simplices. Default: 28.
    pub channels: usize,
    /// The layers of messages. Default: 3.
    pub layers: usize,
}

impl Default for SimplicialHulls {
    fn default() -> Self {
        Self {
            dimension: 5,
            channels: 28,
            layers: 3,
        }
    }
}

/// The values at the ends of a network on simplicial complexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimplexEnds {
    /// The input `[1, simplices, 3]`: 1 at the dimension of each simplex, else 0.
    pub kinds: Value,
    /// The input `[vertices, 1, dimension]`: the position of each vertex.
    pub points: Value,
    /// The relations between rows.
    pub relations: SimplexRelations,
    /// The output `[1, graphs, 1]`: the volume of each hull.
    pub volumes: Value,
}

/// The relations of a network on simplicial complexes, in the order of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimplexRelations {
    /// The simplices that edges bring messages to, and come from: the first two relations.
    pub neighbours: Neighbours,
    /// The complex of each simplex.
    pub graphs: Relation,
    /// The complex of each vertex.
    pub vertices: Relation,
    /// For each dimension the simplex of each order of corners.
    pub simplices: [Relation; DIMENSIONS],
    /// For edges and then triangles, corner by corner, the vertex of each order.
    pub corners: Vec<Vec<Relation>>,
}

impl SimplexRelations {
    pub(super) fn new(network: &mut Network) -> Result<Self, Error> {
        let (neighbours, graphs) = Neighbours::in_graphs(network)?;
        let vertices = network.relation("vertices", Axis::Others(0), Axis::Graphs)?;
        let mut simplices = [graphs; DIMENSIONS];
        for (dimension, own) in simplices.iter_mut().enumerate() {
            let name = format!("simplices.{dimension}");
            *own = network.relation(&name, Axis::Others(dimension), Axis::Rows)?;
        }
        let mut corners = Vec::new();
        for dimension in 1..DIMENSIONS {
            let corner = |at: usize| {
                let name = format!("corners.{dimension}.{at}");
                network.relation(&name, Axis::Others(dimension), Axis::Others(0))
            };
            corners.push((0..=dimension).map(corner).collect::<Result<_, _>>()?);
        }
        Ok(Self {
            neighbours,
            graphs,
            vertices,
            simplices,
            corners,
        })
    }
}

impl SimplicialHulls {
    /// A network without nodes.
    ///
    /// # Errors
    /// [`flashcliff::Error`] for dimensions that algebras do not have.
    pub(super) fn empty(&self) -> Result<MessageLayers, Error> {
        let space = Signature::new(self.dimension, 0, 0).map_err(flashcliff::Error::from)?;
        Ok(MessageLayers::new(Algebra::new(space)?))
    }

    /// The network with its layers, each layer of messages as a separate [block](Network::block), and its ends.
    ///
    /// # Errors
    /// The errors of the nodes.
    pub fn layers(&self) -> Result<(MessageLayers, SimplexEnds), Error> {
        let mut layers = self.empty()?;
        let network = &mut layers.network;
        let axes = [Axis::Fixed(1), Axis::Rows, Axis::Fixed(DIMENSIONS)];
        let kinds = network.input("kinds", &axes);
        let relations = SimplexRelations::new(network)?;
        let [one, dimension] = [1, self.dimension].map(Axis::Fixed);
        let points = network.input("points", &[Axis::Others(0), one, dimension]);
        let scalars = attributes(network, kinds, &relations.neighbours)?;
        let vectors = network.points(points)?;
        let own = self.projected(&mut layers, vectors, (&relations, scalars))?;
        let network = &mut layers.network;
        let own = network.blade(own, 0)?;
        let volumes = network.segment_sum(own, relations.graphs, Reduction::Mean)?;
        let ends = SimplexEnds {
            kinds,
            points,
            relations,
            volumes,
        };
        Ok((layers, ends))
    }

    /// A multivector of each simplex, whose scalar is its part of the volume, from the vectors of vertices behind a zero.
    pub(super) fn projected(
        &self,
        layers: &mut MessageLayers,
        vectors: Value,
        (relations, scalars): (&SimplexRelations, Attributes),
    ) -> Result<Value, Error> {
        let vectors = from_centre(&mut layers.network, vectors, relations.vertices)?;
        let mut h = self.embedded(layers, vectors, relations)?;
        let options = Convolution {
            edge_scalars: 2 * DIMENSIONS,
            node_scalars: DIMENSIONS,
            ..Convolution::new(self.channels)
        };
        for layer in 0..self.layers {
            layers.network.block();
            let prefix = format!("layers.{layer}");
            h = layers.convolution(&prefix, h, (&relations.neighbours, scalars), &options)?;
        }
        layers.network.block();
        layers.linear("projection.0", h, [self.channels, 1], true)
    }

    /// The features of simplices: the sum over dimensions, of which each simplex has one.
    fn embedded(
        &self,
        layers: &mut MessageLayers,
        vectors: Value,
        relations: &SimplexRelations,
    ) -> Result<Value, Error> {
        let own = self.first_of(layers, 0, vectors)?;
        let network = &mut layers.network;
        let mut sum = network.segment_sum(own, relations.simplices[0], Reduction::Sum)?;
        for (dimension, of) in (1..).zip(&relations.corners) {
            let network = &mut layers.network;
            let corners: Result<Vec<Value>, Error> =
                of.iter().map(|&own| network.gather(vectors, own)).collect();
            let side_by_side = network.join(&corners?, 2)?;
            let first = self.first_of(layers, dimension, side_by_side)?;
            let prefix = format!("cl_feature_embedding.{dimension}");
            let own = layers.behind_first(&prefix, first, [self.channels; 2], dimension)?;
            let (network, of) = (&mut layers.network, relations.simplices[dimension]);
            let own = network.segment_sum(own, of, Reduction::Sum)?;
            sum = network.scaled_sum([sum, own], 1.0)?;
        }
        Ok(sum)
    }

    /// The first linear map of the corners of a dimension, which are vectors behind a zero: all blades of higher grades are 0.
    fn first_of(
        &self,
        layers: &mut MessageLayers,
        dimension: usize,
        corners: Value,
    ) -> Result<Value, Error> {
        let (algebra, per_grade) = (layers.algebra(), dimension > 0);
        let prefix = match dimension {
            0 => "cl_feature_embedding.0".to_owned(),
            _ => format!("cl_feature_embedding.{dimension}.layers.0.0"),
        };
        let mut weight = layers.weight(&prefix, [dimension + 1, self.channels], per_grade);
        let bias = layers.bias(&prefix, self.channels);
        let network = &mut layers.network;
        if per_grade {
            let grades = [2, algebra.grade_count() - 2];
            weight = network.split(weight, 2, &grades)?[0];
        }
        let options = LinearOptions::default()
            .with_per_grade(per_grade)
            .with_grades(GradeSet::of(&[0, 1]));
        let map = ops::mv_linear(algebra, &options)?;
        let first = network.operator(&map, &[corners, weight, bias])?;
        network.extend_blades(first, algebra.blade_count())
    }
}

/// The dimensions of both ends of each edge, the sender's first, and the dimensions of nodes.
pub(super) fn attributes(
    network: &mut Network,
    kinds: Value,
    neighbours: &Neighbours,
) -> Result<Attributes, Error> {
    let ends = [neighbours.senders, neighbours.receivers];
    let [senders, receivers] = ends.map(|own| network.gather(kinds, own));
    Ok(Attributes {
        edges: Some(network.join(&[senders?, receivers?], 2)?),
        nodes: Some(kinds),
        weights: None,
    })
}
