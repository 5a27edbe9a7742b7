//! CSMPN's model of hulls on their simplicial complexes.

use std::sync::{Arc, OnceLock};

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff_network::cache::Cache;
use flashcliff_network::messages::{self, Skeleton, SkeletonEnds};
use flashcliff_network::{Axis, Network};

use super::parameters_of;
use crate::Error;
use crate::objective::description::{Described, OfGraphs};
use crate::op::graphs::Graphs;
use crate::op::network::{Around, Node};

/// Points of a hull.
const VERTICES: usize = 8;
/// Vertices, edges and triangles of them: the rows of a sample.
pub(super) const POINTS: usize = 8 + 28 + 56;
/// Numbers of a simplex.
pub(super) const ROW: usize = 5 + messages::SIMPLEX_NUMBERS;

/// Volume of the convex hull of 8 points in R^5, from the vertices, edges and triangles of the hull, invariant under O(5).
///
/// A sample has a row for each simplex of 8 points, which says whether it is in the complex: [`messages::Skeleton`] has their order, and
/// [`messages::SIMPLEX_NUMBERS`] the numbers behind their positions. [`messages::SimplicialHulls`] describes the network: 28 channels, three layers of
/// messages, 254,325 parameters, named as in CSMPN, whose unused `readout` is left out.
///
/// Source: CSMPN (arXiv 2402.10011).
#[derive(Clone, Debug)]
pub struct SimplicialHulls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    network: Network,
    ends: SkeletonEnds,
    parameters: Vec<Tensor>,
    node: OnceLock<Node>,
    /// The graphs of batches, by their samples.
    graphs: Cache<usize, Graphs>,
}

/// The graphs of so many samples.
fn graphs(samples: usize) -> std::result::Result<Graphs, Error> {
    let skeleton = Skeleton::new(VERTICES);
    Ok(Graphs::new(
        skeleton.rows(samples),
        skeleton.segments(samples)?,
    ))
}

impl SimplicialHulls {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        let (layers, ends) = messages::SimplicialHulls::default().on_skeletons()?;
        Ok(Self(Arc::new(Inner {
            parameters: parameters_of(&layers, &vb)?,
            network: layers.network,
            ends,
            node: OnceLock::new(),
            graphs: Cache::default(),
        })))
    }

    /// The model as a network, to its prediction and the target.
    pub(super) fn described(&self) -> std::result::Result<Described, Error> {
        let own = &*self.0;
        let mut network = own.network.clone();
        let axes = [Axis::Fixed(1), Axis::Graphs, Axis::Fixed(1)];
        let target = network.input("targets", &axes);
        Ok(Described {
            network,
            ends: [own.ends.volumes, target],
            tensors: own.parameters.clone(),
            graphs: Some(OfGraphs {
                graphs,
                nodes: POINTS,
                numbers: ROW,
                targets: 1,
            }),
        })
    }
}

impl Module for SimplicialHulls {
    /// Volumes `[samples]` of complexes `[samples, 92, 11]`.
    fn forward(&self, simplices: &Tensor) -> Result<Tensor> {
        let (samples, nodes, row) = simplices.dims3()?;
        let own = &*self.0;
        let node = own.node.get_or_init(|| {
            let (network, output) = (own.network.clone(), own.ends.volumes);
            Node::of("csmpn-hulls", network, output, own.parameters.clone())
        });
        let graphs = own.graphs.get(samples, |&samples| graphs(samples))?;
        let simplices = simplices.reshape((samples, nodes, 1, row))?;
        let volumes = node.apply(&[&simplices], Some(Around::of_graphs(&graphs)))?;
        volumes.reshape(samples)
    }
}
