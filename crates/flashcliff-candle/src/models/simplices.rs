//! CSMPN's model of hulls on their simplicial complexes.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use flashcliff_network::messages::{self, Skeleton};

use super::on_graphs::{OnGraphs, Predicts};
use crate::Error;
use crate::objective::description::{Described, OfGraphs};
use crate::op::graphs::Graphs;

/// Points of a hull.
const VERTICES: usize = 8;
/// Vertices, edges and triangles of them: the rows of a sample.
pub(super) const POINTS: usize = 8 + 28 + 56;
/// Numbers of a simplex.
pub(super) const ROW: usize = 5 + messages::SIMPLEX_NUMBERS;

/// Volume of the convex hull of 8 points in R^5, from the vertices, edges and triangles of the hull, invariant under O(5).
///
/// A sample has a row for each simplex of 8 points, which says whether it is in the complex: [`messages::Skeleton`] has
/// their order, and [`messages::SIMPLEX_NUMBERS`] the numbers after their positions. [`messages::SimplicialHulls`]
/// describes the network: 28 channels, three layers of messages, 254,325 parameters, named as in CSMPN, whose unused
/// `readout` is left out.
///
/// Source: CSMPN (arXiv 2402.10011).
#[derive(Clone, Debug)]
pub struct SimplicialHulls(OnGraphs);

/// The graphs of so many samples, with the rows of the skeleton.
fn graphs(samples: usize, _rows: usize) -> std::result::Result<Graphs, Error> {
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
        let of = OfGraphs {
            graphs,
            nodes: POINTS,
            numbers: ROW,
            targets: 1,
        };
        let output = (ends.volumes, Predicts::Number);
        Ok(Self(OnGraphs::new("csmpn-hulls", layers, output, of, &vb)?))
    }

    /// The model as a network, to its prediction and the target.
    pub(super) fn described(&self) -> std::result::Result<Described, Error> {
        self.0.described()
    }
}

impl Module for SimplicialHulls {
    /// Volumes `[samples]` of complexes `[samples, 92, 11]`.
    fn forward(&self, simplices: &Tensor) -> Result<Tensor> {
        self.0.forward(simplices)
    }
}
