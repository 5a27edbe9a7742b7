//! Maps points to multivector channels.

use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{Init, Module, VarBuilder};
use flashcliff::ops::{self, LinearOptions};
use flashcliff::{Algebra, Bias, GradeSet};
use flashcliff_network::Value;

use super::normal;
use crate::Error;
use crate::choices;
use crate::functional::point_vectors;
use crate::objective::description::Description;
use crate::op::embed::EmbedVectors;
use crate::op::node::{self, Argument};
use crate::op::once::entering;

/// [`MVLinear`](super::MVLinear) with one matrix for all grades, on points embedded as vectors: `y
/// = W x + bias` with the bias on the scalar blade.
///
/// The function and the parameters are those of `MVLinear(.., subspaces=False)` after
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
    function: Arc<EmbedVectors>,
    weight: Tensor,
    bias: Tensor,
}

impl PointEmbedding {
    /// A layer from `points` points to `channels` channels.
    ///
    /// # Errors
    /// The errors of the builder.
    pub fn new(algebra: Algebra, points: usize, channels: usize, vb: VarBuilder) -> Result<Self> {
        choices::note_algebra(&vb, algebra);
        let init = normal(1.0 / (points as f64).sqrt());
        let weight = vb.get_with_hints((channels, points), "weight", init)?;
        let bias = vb.get_with_hints((1, channels, 1), "bias", Init::Const(0.0))?;
        let function = Arc::new(EmbedVectors {
            vectors: algebra.signature().dim(),
            blades: algebra.blade_count(),
        });
        Ok(Self {
            algebra,
            function,
            weight,
            bias,
        })
    }
}

impl PointEmbedding {
    /// The function that puts vectors and bias into full multivectors.
    pub(crate) fn function(&self) -> &Arc<EmbedVectors> {
        &self.function
    }

    /// The vector part of the output, `[dim, batch, out]`: the first input of the function.
    pub(crate) fn vectors(&self, points: &Tensor) -> Result<Tensor> {
        let vectors = point_vectors(self.algebra, points)?;
        let (dim, batch, count) = vectors.dims3()?;
        vectors
            .reshape((dim * batch, count))?
            .matmul(&entering(&self.weight)?.t()?)?
            .reshape((dim, batch, self.weight.dim(0)?))
    }

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

    /// The bias: the second input of the function.
    pub(crate) fn bias(&self) -> Argument<'_> {
        // The bias is stored as [1, out, 1].
        Argument::shaped(&self.bias, &self.weight.dims()[..1])
    }
}

impl Module for PointEmbedding {
    fn forward(&self, points: &Tensor) -> Result<Tensor> {
        let vectors = self.vectors(points)?;
        let arguments = [Argument::whole(&vectors), self.bias()];
        Ok(node::apply(&self.function, &arguments)?)
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
