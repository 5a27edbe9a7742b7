//! Maps points to multivector channels.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, GradeSet};
use flashcliff_network::Value;

use super::{at_least_one, normal};
use crate::Error;
use crate::choices;
use crate::objective::description::Description;
use crate::op::network::Applied;

/// [`MVLinear`](super::MVLinear) with one matrix for all grades, on points embedded as vectors: `y
/// = W x + bias` with the bias on the scalar blade.
///
/// The function and the parameters are the same as for `MVLinear(.., subspaces=False)` after
/// `embed_grade(points, 1)` in CGENN. Only the vector blades are computed; all others but the
/// scalar are zero.
///
/// Input: points `[batch, in, dim]`. Output: `[blades, batch, out]`.
///
/// | parameter | shape | start |
/// |---|---|---|
/// | `weight` | `[out, in]` | normal, std `1 / sqrt(in)` |
/// | `bias` | `[1, out, 1]` | 0 |
#[derive(Clone)]
pub struct PointEmbedding {
    algebra: Algebra,
    weight: Tensor,
    bias: Tensor,
    applied: Applied,
}

impl PointEmbedding {
    /// A layer from `points` points to `channels` channels.
    ///
    /// # Errors
    /// [`Error::Option`] without points or channels, and the errors of the builder.
    pub fn new(algebra: Algebra, points: usize, channels: usize, vb: VarBuilder) -> Result<Self> {
        at_least_one([("points", points), ("channels", channels)])?;
        choices::note_algebra(&vb, algebra);
        let init = normal(1.0 / (points as f64).sqrt());
        let weight = vb.get_with_hints((channels, points), "weight", init)?;
        let bias = vb.get_with_hints((1, channels, 1), "bias", Init::Const(0.0))?;
        Ok(Self {
            algebra,
            weight,
            bias,
            applied: Applied::default(),
        })
    }
}

impl PointEmbedding {
    /// The layer in a network: a value `[blades, rows, out]` from the points of the batch. Blades of grades above 1 are 0.
    pub(crate) fn describe(&self, network: &mut Description) -> std::result::Result<Value, Error> {
        let (channels, points) = self.weight.dims2()?;
        let dim = self.algebra.signature().dim();
        let options = LinearOptions::default()
            .with_per_grade(false)
            .with_bias(Bias::Scalar)
            .with_grades(GradeSet::of(&[0, 1]));
        let operator = Arc::new(ops::mv_linear(self.algebra, &options)?);
        let x = network.points(points, dim);
        let x = network.network.points(x)?;
        let parameters = [
            (&self.weight, vec![channels, points]),
            (&self.bias, vec![channels]),
        ];
        let embedded = network.operator(&operator, &[x], &parameters)?;
        Ok(network
            .network
            .extend_blades(embedded, self.algebra.blade_count())?)
    }
}

impl Module for PointEmbedding {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let describe = |network: &mut Description| self.describe(network);
        Ok(self.applied.apply("point_embedding", &[points], describe)?)
    }
}

impl std::fmt::Debug for PointEmbedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PointEmbedding")
            .field("algebra", &self.algebra)
            .field("weight", &self.weight.dims())
            .finish_non_exhaustive()
    }
}
