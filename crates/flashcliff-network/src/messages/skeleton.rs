//! CSMPN's network on all simplices of some points. Only the simplices of a complex are there.
//!
//! All samples then have the same rows and relations, so one plan serves every batch, and its steps can be captured
//! on a GPU. The numbers of a sample say which simplices are there.

use super::simplices::{DIMENSIONS, SimplexRelations, SimplicialHulls, attributes};
use super::{Attributes, MessageLayers};
use crate::relation::{Reduction, Relation};
use crate::{Axis, Error, Network, Rows, Segments, Value};

/// The numbers of a simplex after its position: whether it is there, the part of the sum of its messages, its part of
/// the prediction, and 1 at its dimension.
pub const SIMPLEX_NUMBERS: usize = 3 + DIMENSIONS;

/// All vertices, edges and triangles of so many points. Edges and triangles are in the order of their corners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    points: usize,
    /// The corners of each simplex, ascending.
    simplices: Vec<Vec<usize>>,
    /// The receiver and the sender of each edge of the graph, and the simplex that must be there for it.
    edges: Vec<[usize; 3]>,
}

/// The values at the ends of a network on skeletons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkeletonEnds {
    /// The input `[simplices, 1, dimension + SIMPLEX_NUMBERS]`.
    pub simplices: Value,
    /// The relations, but for [`Self::tops`].
    pub relations: SimplexRelations,
    /// The simplex that must be there for an edge of the graph: the last relation.
    pub tops: Relation,
    /// The output `[1, graphs, 1]`: the volume of each hull.
    pub volumes: Value,
}

impl Skeleton {
    /// The skeleton of some points.
    pub fn new(points: usize) -> Self {
        let mut simplices: Vec<Vec<usize>> = (0..points).map(|own| vec![own]).collect();
        let mut first = 0;
        for _ in 1..DIMENSIONS {
            let below = first..simplices.len();
            first = below.end;
            for at in below {
                let last = simplices[at].last().map_or(0, |own| own + 1);
                for next in last..points {
                    let mut own = simplices[at].clone();
                    own.push(next);
                    simplices.push(own);
                }
            }
        }
        let mut own = Self {
            points,
            simplices,
            edges: Vec::new(),
        };
        own.edges = own.all_edges();
        own
    }

    /// The number of simplices.
    pub fn len(&self) -> usize {
        self.simplices.len()
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.simplices.is_empty()
    }

    /// The corners of each simplex.
    pub fn simplices(&self) -> &[Vec<usize>] {
        &self.simplices
    }

    fn number(&self, corners: &[usize]) -> usize {
        let found = self.simplices.iter().position(|own| own == corners);
        found.unwrap_or_default()
    }

    /// The simplices of a dimension, with their numbers.
    fn of(&self, dimension: usize) -> impl Iterator<Item = (usize, &Vec<usize>)> {
        let all = self.simplices.iter().enumerate();
        all.filter(move |(_, own)| own.len() == dimension + 1)
    }

    /// As CSMPN lists them: two vertices are neighbours, and once more from the larger to the smaller one if they
    /// share an edge; two edges are if they share a triangle; and a simplex and each of its faces are.
    fn all_edges(&self) -> Vec<[usize; 3]> {
        let mut found = Vec::new();
        for to in 0..self.points {
            for from in (0..self.points).filter(|&from| from != to) {
                found.push([to, from, to]);
                if from > to {
                    found.push([to, from, self.number(&[to, from])]);
                }
            }
        }
        for dimension in 1..DIMENSIONS {
            for (top, corners) in self.of(dimension) {
                let face = |without: usize| {
                    let mut own = corners.clone();
                    own.remove(without);
                    self.number(&own)
                };
                let faces: Vec<usize> = (0..=dimension).map(face).collect();
                for &one in &faces {
                    found.extend([[top, one, top], [one, top, top]]);
                    // Pairs of vertices are there already.
                    let others = faces.iter().filter(|&&own| own != one && dimension > 1);
                    found.extend(others.map(|&own| [one, own, top]));
                }
            }
        }
        found
    }

    /// The rows of so many samples.
    pub fn rows(&self, samples: usize) -> Rows {
        let orders = |dimension: usize| (1..=dimension + 1).product::<usize>();
        let mut others = [0; Rows::MOST_OTHERS];
        for (dimension, own) in others.iter_mut().enumerate().take(DIMENSIONS) {
            *own = samples * self.of(dimension).count() * orders(dimension);
        }
        Rows {
            edges: samples * self.edges.len(),
            graphs: samples,
            others,
            ..Rows::new(samples, self.len())
        }
    }

    /// The segments of all relations of so many samples, in the order of the network.
    ///
    /// # Errors
    /// [`Error::TooManySegments`] for more rows than relations can have.
    pub fn segments(&self, samples: usize) -> Result<Vec<Segments>, Error> {
        let (nodes, vertices) = (samples * self.len(), samples * self.points);
        let repeated = |own: &[usize], step: usize| -> Vec<usize> {
            let all = (0..samples).map(|sample| sample * step);
            all.flat_map(|first| own.iter().map(move |at| first + at))
                .collect()
        };
        let end = |at: usize| {
            let own: Vec<usize> = self.edges.iter().map(|edge| edge[at]).collect();
            Segments::new(&repeated(&own, self.len()), nodes)
        };
        let mut found = vec![end(0)?, end(1)?];
        for each in [self.len(), self.points] {
            found.push(Segments::new(&repeated(&vec![0; each], 1), samples)?);
        }
        let orders = |dimension: usize| {
            let all = self.of(dimension);
            all.flat_map(|(at, corners)| orders(corners).into_iter().map(move |own| (at, own)))
                .collect::<Vec<_>>()
        };
        for dimension in 0..DIMENSIONS {
            let own: Vec<usize> = orders(dimension).into_iter().map(|own| own.0).collect();
            found.push(Segments::new(&repeated(&own, self.len()), nodes)?);
        }
        for dimension in 1..DIMENSIONS {
            for corner in 0..=dimension {
                let own = orders(dimension).into_iter();
                let own: Vec<usize> = own.map(|(_, order)| order[corner]).collect();
                found.push(Segments::new(&repeated(&own, self.points), vertices)?);
            }
        }
        found.push(end(2)?);
        Ok(found)
    }
}

/// All orders of some corners.
fn orders(corners: &[usize]) -> Vec<Vec<usize>> {
    if corners.is_empty() {
        return vec![Vec::new()];
    }
    let places = 0..corners.len();
    let beginning = places.map(|at| {
        let mut others = corners.to_vec();
        let first = others.remove(at);
        let rest = orders(&others).into_iter();
        rest.map(move |own| [vec![first], own].concat())
    });
    beginning.flatten().collect()
}

impl SimplicialHulls {
    /// The network on skeletons, with the same parameters. Messages between simplices that are not there have the weight 0.
    ///
    /// # Errors
    /// The errors of the nodes.
    pub fn on_skeletons(&self) -> Result<(MessageLayers, SkeletonEnds), Error> {
        let mut layers = self.empty()?;
        let network = &mut layers.network;
        let numbers = Axis::Fixed(self.dimension + SIMPLEX_NUMBERS);
        let simplices = network.input("simplices", &[Axis::Rows, Axis::Fixed(1), numbers]);
        let relations = SimplexRelations::new(network)?;
        let tops = network.relation("tops", Axis::Edges, Axis::Rows)?;
        // Behind a zero the position, and further numbers.
        let blades = network.points(simplices)?;
        let sizes: Vec<usize> = [self.dimension + 1]
            .into_iter()
            .chain([1; SIMPLEX_NUMBERS])
            .collect();
        let parts = network.split(blades, 0, &sizes)?;
        let kinds = network.join(&parts[4..], 2)?;
        let vectors = network.gather(parts[0], relations.simplices[0])?;
        let there = network.gather(parts[1], tops)?;
        let weights = [
            widened(network, there, self.channels)?,
            widened(network, parts[2], self.channels)?,
        ];
        let scalars = Attributes {
            weights: Some(weights),
            ..attributes(network, kinds, &relations.neighbours)?
        };
        let own = self.projected(&mut layers, vectors, (&relations, scalars))?;
        let own = layers.scaled(parts[3], own)?;
        let network = &mut layers.network;
        // The scalar may have another type than features: that of the volumes.
        let own = network.blade(own, 0)?;
        let volumes = network.segment_sum(own, relations.graphs, Reduction::Sum)?;
        let ends = SkeletonEnds {
            simplices,
            relations,
            tops,
            volumes,
        };
        Ok((layers, ends))
    }
}

/// A scalar of each row in as many channels.
pub(super) fn widened(network: &mut Network, x: Value, channels: usize) -> Result<Value, Error> {
    // Powers of two that add up to the channels that are wanted.
    let (mut power, mut parts, mut left) = (x, Vec::new(), channels);
    loop {
        if left % 2 == 1 {
            parts.push(power);
        }
        left /= 2;
        if left == 0 {
            break;
        }
        power = network.join(&[power, power], 2)?;
    }
    network.join(&parts, 2)
}
