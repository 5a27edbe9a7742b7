//! The rounding of the operands of matrix products.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Dtype;

/// The rounding of `f32` operands in the matrix products of [`mv_linear`](crate::ops::mv_linear),
/// [`mv_linear_sgp_norm`](crate::ops::mv_linear_sgp_norm) and [`fcgp_norm`](crate::ops::fcgp_norm). Sums are always
/// `f32`. Tensors of other types are multiplied without rounding: products of 16-bit numbers are exact in `f32`, and
/// `f64` is computed in `f64`.
///
/// The left operands of [`fcgp_norm`](crate::ops::fcgp_norm) are themselves products, of `x` and `y`. They and their
/// gradients are rounded like operands, for 16-bit tensors to the type of the tensors.
///
/// Rounded `f32` operands of [`fcgp_norm`](crate::ops::fcgp_norm) are stored as `f16` numbers times powers of two, so
/// that none overflows. `f16` has the fraction of TF32 and a higher rate on tensor cores. There is one power for all
/// weights, one for each row and output grade of path products and of the gradient, and, in gradients of the weights,
/// one for each path in a block of rows. Numbers below 2^-28 of the largest number with the same power keep fewer bits
/// or none. Numbers with the same power are parts of one sum, except weights of different paths and channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MatmulPrecision {
    /// No rounding.
    #[default]
    Highest,
    /// Rounded to TF32: 8 bits of exponent, 10 of fraction.
    Tf32,
    /// Rounded to bf16: 8 bits of exponent, 7 of fraction. In [`fcgp_norm`](crate::ops::fcgp_norm) the same as
    /// [`Self::Tf32`], which costs no more there.
    Bf16,
    /// Rounded to f16: 5 bits of exponent, 10 of fraction. Numbers beyond 65504 overflow, except in
    /// [`fcgp_norm`](crate::ops::fcgp_norm), where this is the same as [`Self::Tf32`].
    F16,
}

impl MatmulPrecision {
    /// The precision that matters for operands of a type: always [`Self::Highest`] for types other than `f32`. Tuning
    /// tables use it in their keys.
    pub(crate) fn of(self, operands: Dtype) -> Self {
        match operands {
            Dtype::F32 => self,
            _ => Self::Highest,
        }
    }

    /// The name: `highest`, `tf32`, `bf16` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Highest => "highest",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
