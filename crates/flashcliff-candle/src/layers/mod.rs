//! Layers: parameters and the operators that use them.
//!
//! Constructors take a [`VarBuilder`]. Parameters have the names and shapes of the PyTorch state dict of the original,
//! so its weights load unchanged. Multivectors are `[blades, batch, channels]`.
//!
//! Layers made with the builder of [`Parameters`](crate::init::Parameters) say their algebra and their norm in
//! [checkpoints](crate::checkpoint). Weights of another algebra or norm are refused.
//!
//! [`transformer`] has the layers of geometric algebra transformers, whose multivectors come with scalar channels.

mod flash_clifford;
mod fully_connected;
mod grade_norm;
mod mv_layer_norm;
mod mv_linear;
mod mv_silu;
mod point_embedding;
mod steerable;
pub mod transformer;

pub use flash_clifford::{FlashCliffordLayer, FlashCliffordOptions};
pub use fully_connected::FullyConnectedSteerableGeometricProduct;
pub use grade_norm::GradeNorm;
pub use mv_layer_norm::MVLayerNorm;
pub use mv_linear::MVLinear;
pub use mv_silu::MVSiLU;
pub use point_embedding::PointEmbedding;
pub use steerable::{SteerableGeometricProduct, SteerableLayerOptions};

use candle_nn::{Init, Linear, VarBuilder};

use crate::Error;

/// An ordinary linear layer with PyTorch's initialisation: `weight` `[out, in]` and `bias` `[out]`,
/// both uniform in `+-1 / sqrt(in)`.
///
/// # Errors
/// [`Error::Option`] without features on a side, and the errors of the builder.
pub fn linear(
    in_features: usize,
    out_features: usize,
    vb: VarBuilder,
) -> candle_core::Result<Linear> {
    at_least_one([("in_features", in_features), ("out_features", out_features)])?;
    let bound = 1.0 / (in_features as f64).sqrt();
    let init = Init::Uniform {
        lo: -bound,
        up: bound,
    };
    let weight = vb.get_with_hints((out_features, in_features), "weight", init)?;
    let bias = vb.get_with_hints(out_features, "bias", init)?;
    Ok(Linear::new(weight, Some(bias)))
}

/// Checks sizes of a layer, each with the name of its argument: a layer of nothing has no use, and parameters of it no bounds.
///
/// # Errors
/// [`Error::Option`] for the first one that is 0.
fn at_least_one<const N: usize>(sizes: [(&'static str, usize); N]) -> Result<(), Error> {
    match sizes.into_iter().find(|&(_, size)| size == 0) {
        None => Ok(()),
        Some((option, _)) => Err(Error::Option {
            option,
            expected: "a number from 1 up",
            got: 0.0,
        }),
    }
}

/// A normal distribution around zero.
fn normal(stdev: f64) -> Init {
    Init::Randn { mean: 0.0, stdev }
}
