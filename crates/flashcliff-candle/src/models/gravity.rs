//! The model of bodies that attract each other.

use candle_core::{D, Result, Tensor};
use candle_nn::VarBuilder;

use super::gatr::{Gatr, GatrOptions};
use crate::Error;
use crate::layers::transformer::{Call, Channels, Draw, Tokens, numbers};
use crate::op::once::entering;

/// Bodies of a sample.
pub(super) const POINTS: usize = 4;
/// Numbers of a body: mass, position, velocity.
pub(super) const ROW: usize = 7;
/// Numbers of a target: a position for each body.
pub(super) const TARGETS: usize = 3 * POINTS;

/// The channels of the input and the output.
const ENDS: Channels = Channels::new(1, 1);
/// The blades of a point: coordinates z, y, x with the signs below, and the weight.
const POINT: usize = 11;
const WEIGHT: usize = 14;
/// Takes the place of a weight whose absolute value is not larger.
const LEAST_WEIGHT: f64 = 1e-3;

/// The sizes of the published run.
const OPTIONS: GatrOptions = GatrOptions::new(ENDS, ENDS, Channels::new(16, 128));

/// Where bodies are after some time, from their masses, positions and velocities. It commutes with rotations and
/// translations; with reflections only the network does, since the weight of an embedded point is 1 and that of a
/// reflected one -1.
///
/// Each body is one multivector: the sum of its mass as a scalar, its position `x` as the point `e123 - z e012 + y e013 - x e023`, and its
/// velocity `v` as the translation `1 - e0 v / 2`; and one scalar, 0. A [`Gatr`] of 10 blocks with 16 multivector and 128 scalar channels
/// follows, and the points of its output are read. 2,209,058 parameters, named as in GATr.
///
/// Source: GATr (arXiv 2305.18415), the n-body experiment of its repository.
#[derive(Clone, Debug)]
pub struct Gravity {
    net: Gatr,
    /// From a body to its token, `[ROW, width]` and `[width]`.
    embedding: (Tensor, Tensor),
}

impl Gravity {
    /// The model with parameters from `vb`.
    ///
    /// # Errors
    /// The errors of the core and of the builder.
    pub fn new(vb: VarBuilder) -> std::result::Result<Self, Error> {
        Self::with_dropout(None, vb)
    }

    /// The model with dropout of grades in its blocks, if there is a probability: see [`GatrOptions::dropout`]. The
    /// names of parameters count layers of dropout, as in GATr.
    ///
    /// # Errors
    /// [`Error::Option`] for a dropout that is not a probability, and the errors of [`Self::new`].
    pub fn with_dropout(dropout: Option<f64>, vb: VarBuilder) -> std::result::Result<Self, Error> {
        let width = ENDS.width();
        let mut matrix = vec![0.0; ROW * width];
        // Mass, x, y, z, velocity.
        let entries = [
            (0, 0, 1.0),
            (1, POINT + 2, -1.0),
            (2, POINT + 1, 1.0),
            (3, POINT, -1.0),
            (4, 5, -0.5),
            (5, 6, -0.5),
            (6, 7, -0.5),
        ];
        for (from, to, value) in entries {
            matrix[from * width + to] = value;
        }
        let mut constant = vec![0.0; width];
        // The scalar of the translation, and the weight of the point.
        (constant[0], constant[WEIGHT]) = (1.0, 1.0);
        let made = |values: Vec<f64>, shape: &[usize]| -> Result<Tensor> {
            Tensor::from_vec(values, shape, vb.device())?.to_dtype(vb.dtype())
        };
        Ok(Self {
            embedding: (made(matrix, &[ROW, width])?, made(constant, &[width])?),
            net: Gatr::new(GatrOptions { dropout, ..OPTIONS }, vb)?,
        })
    }

    /// Whether the backward pass runs each block again, as in [`Gatr::with_gradient_checkpointing`].
    #[must_use]
    pub fn with_gradient_checkpointing(self, gradient_checkpointing: bool) -> Self {
        let net = self.net.with_gradient_checkpointing(gradient_checkpointing);
        Self { net, ..self }
    }

    /// The [description](Gatr::description) of the transformer. Its `tokens` are bodies as multivectors, its
    /// `reference` is 1, the mean of their weights, and its `output` has the points.
    ///
    /// # Errors
    /// The errors of the description.
    pub fn description(&self) -> std::result::Result<String, Error> {
        self.net.description()
    }

    /// Positions `[samples, 12]`: three coordinates for each body.
    ///
    /// # Errors
    /// Bodies that are not `[samples, 4, 7]`.
    pub fn forward(&self, bodies: &Tensor) -> Result<Tensor> {
        positions(&self.tokens(bodies, None)?)
    }

    /// Positions, and the regulariser of the output: the mean over samples of the sum of the squares of what is not a
    /// point of weight 1 or -1. A model with dropout drops grades if there are random numbers.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    pub fn forward_regularised(
        &self,
        bodies: &Tensor,
        draw: Option<&Draw>,
    ) -> Result<(Tensor, Tensor)> {
        let tokens = self.tokens(bodies, draw)?;
        Ok((positions(&tokens)?, regulariser(&tokens)?))
    }

    /// The output, `[samples, bodies, width]`.
    fn tokens(&self, bodies: &Tensor, draw: Option<&Draw>) -> Result<Tensor> {
        let (samples, count, row) = bodies.dims3()?;
        let bodies = entering(bodies)?.contiguous()?;
        let rows = bodies.reshape((samples * count, row))?;
        let (matrix, constant) = &self.embedding;
        let rows = rows.matmul(matrix)?.broadcast_add(constant)?;
        let tokens = rows.reshape((samples, count, ENDS.width()))?;
        let call = Call {
            draw,
            ..Call::default()
        };
        let out = self.net.call(&Tokens::from_packed(tokens, ENDS)?, &call)?;
        Ok(out.packed().clone())
    }
}

/// The points of tokens, in a row for each sample.
fn positions(tokens: &Tensor) -> Result<Tensor> {
    let (samples, count, _) = tokens.dims3()?;
    let blade = |blade: usize| numbers(tokens, blade, 1)?.contiguous();
    let weight = blade(WEIGHT)?;
    // A tensor, since candle would copy a number from the host of a GPU.
    let least = weight.zeros_like()?.affine(0.0, LEAST_WEIGHT)?.detach();
    let weight = weight.abs()?.gt(&least)?.where_cond(&weight, &least)?;
    let (z, y, x) = (blade(POINT)?, blade(POINT + 1)?, blade(POINT + 2)?);
    let coordinates = Tensor::cat(&[&x.neg()?, &y, &z.neg()?], D::Minus1)?;
    let points = coordinates.broadcast_div(&weight)?;
    points.reshape((samples, count * 3))
}

fn regulariser(tokens: &Tensor) -> Result<Tensor> {
    let before = numbers(tokens, 0, POINT)?.sqr()?.sum_all()?;
    // The pseudoscalar, and the scalars after it.
    let after = numbers(tokens, WEIGHT + 1, 1 + ENDS.scalars)?;
    let after = after.sqr()?.sum_all()?;
    let weight = numbers(tokens, WEIGHT, 1)?.abs()?;
    let weight = weight.affine(1.0, -1.0)?.sqr()?.sum_all()?;
    let samples = tokens.dims()[0].max(1) as f64;
    ((before + after)? + weight)?.affine(1.0 / samples, 0.0)
}
