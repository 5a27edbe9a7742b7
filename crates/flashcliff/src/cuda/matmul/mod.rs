//! Matrix products of cuBLASLt.

mod blaslt;
mod library;
mod plan;
mod product;

pub(super) use blaslt::BlasLt;
pub(super) use product::{BIAS_ALIGNMENT, Form, MANY_TILES, ONE, Product, tiles, workspace_bytes};

/// How the matrix products of [`mv_linear`](crate::ops::mv_linear) and
/// [`fcgp_norm`](crate::ops::fcgp_norm) treat `f32` operands. Sums are always `f32`. Tensors of other
/// types are multiplied as they are: products of 16-bit numbers are exact in `f32`, and `f64` is
/// computed in `f64`.
///
/// The left operands of the fully connected product are themselves products, of `x` and `y`: for
/// 16-bit tensors these are rounded to that type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatmulPrecision {
    /// No rounding.
    #[default]
    Highest,
    /// Rounded to TF32: 8 bits of exponent, 10 of fraction.
    Tf32,
    /// Rounded to bf16: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// Rounded to f16: 5 bits of exponent, 10 of fraction. Numbers beyond 65504 overflow.
    F16,
}

/// The address of the `index`-th part of `size` elements.
pub(super) fn offset(base: u64, index: usize, size: usize, bytes: usize) -> u64 {
    base + (index * size * bytes) as u64
}
