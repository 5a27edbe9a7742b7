//! The core's operators as differentiable functions of candle tensors.
//!
//! Multivector tensors are `[blades, batch, channels]`; `C` is a number of channels, `grades` the number
//! of grades, `paths` the number of paths. Every function builds its operator and applies it
//! ([`apply`]); a layer that runs often keeps the operator instead. All of them take `f32` or `f64`,
//! on a GPU also `bf16` and `f16`. They fail as [`apply`] does, and as the functions of [`flashcliff::ops`] do.
//!
//! * `operators` - one function for each operator, written by `cargo xtask gen`.
//! * here - points as multivectors.

#[rustfmt::skip]
mod operators;

use candle_core::{Result, Tensor};
use flashcliff::{Algebra, Error, Operator};

use crate::op::apply;
use crate::op::once::entering;

pub use operators::*;

/// Points as the vector part of full multivectors: `[batch, points, dim]` to `[blades, batch,
/// points]`.
///
/// # Errors
/// Points whose dimension is not the algebra's.
pub fn embed_points(algebra: Algebra, points: &Tensor) -> Result<Tensor> {
    let vectors = point_vectors(algebra, points)?;
    let rest = algebra.blade_count() - 1 - vectors.dim(0)?;
    vectors.pad_with_zeros(0, 1, rest)
}

/// Points as vectors only: `[batch, points, dim]` to `[dim, batch, points]`, contiguous.
///
/// # Errors
/// Points whose dimension is not the algebra's.
pub fn point_vectors(algebra: Algebra, points: &Tensor) -> Result<Tensor> {
    let dim = algebra.signature().dim();
    match *points.dims() {
        [_, _, got] if got == dim => entering(points)?.permute((2, 0, 1))?.contiguous(),
        _ => Err(crate::Error::Shape {
            tensor: "points".to_owned(),
            expected: format!("[batch, points, {dim}]"),
            got: points.dims().to_vec(),
        }
        .into()),
    }
}

/// Applies an operator to the inputs that are given.
fn run(
    operator: std::result::Result<Operator, Error>,
    inputs: &[Option<&Tensor>],
) -> Result<Tensor> {
    let operator = operator.map_err(crate::Error::from)?;
    let inputs: Vec<&Tensor> = inputs.iter().copied().flatten().collect();
    apply(&operator, &inputs)
}
