//! Element types.

use std::fmt;

use crate::Tier;
use crate::operator::gemm::Gemm;
use flashcliff_kernels::simd::{Math, Scalar};
use flashcliff_kernels::stage::{Stage, Tiers};

/// The type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// The upper half of an `f32`: 8 bits of exponent, 7 of fraction. Storage only, and on CUDA.
    Bf16,
    /// IEEE half precision: 5 bits of exponent, 10 of fraction. Storage only, and on CUDA.
    F16,
}

impl Dtype {
    /// The bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// The type in which elements are computed: `F64` for `F64`, `F32` for all others.
    pub const fn arithmetic(self) -> Self {
        match self {
            Self::F64 => Self::F64,
            Self::F32 | Self::Bf16 | Self::F16 => Self::F32,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// `f32` or `f64`.
pub trait Element:
    Copy
    + Default
    + PartialEq
    + PartialOrd
    + fmt::Debug
    + Send
    + Sync
    + 'static
    + private::Kernel
    + crate::attention::Compiled
    + crate::attention::CompiledHeads
    + crate::equivariant::CompiledLinear
    + crate::equivariant::CompiledNorm
    + crate::operator::Compiled
    + crate::rotor::Compiled
{
    /// The name of the type at run time.
    const DTYPE: Dtype;

    /// The nearest value of the type.
    fn from_f64(value: f64) -> Self;

    /// The value, exactly.
    fn to_f64(self) -> f64;
}

/// The part of an element that only the library uses.
mod private {
    use super::{Gemm, Stage, Tier, Tiers};

    #[allow(
        private_bounds,
        private_interfaces,
        unreachable_pub,
        reason = "sealed: cannot be named outside"
    )]
    pub trait Kernel:
        Sized
        + Gemm
        + std::ops::AddAssign
        + std::ops::Sub<Output = Self>
        + std::ops::Mul<Output = Self>
        + std::ops::Div<Output = Self>
    {
        /// The functions of a stage for this type.
        fn tiers(stage: &'static Stage) -> &'static Tiers<Self>;

        /// How many elements a vector of the tier holds.
        fn lanes(tier: Tier) -> usize;

        /// e to the power of the number. It has no branch, so that loops of it become vectors.
        fn exp(self) -> Self;
    }
}

macro_rules! element {
    ($type:ident, $dtype:ident, $lanes:expr) => {
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;

            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn to_f64(self) -> f64 {
                self.into()
            }
        }

        #[allow(private_interfaces, reason = "sealed: cannot be named outside")]
        impl private::Kernel for $type {
            fn tiers(stage: &'static Stage) -> &'static Tiers<Self> {
                &stage.$type
            }

            fn lanes(tier: Tier) -> usize {
                $lanes(tier)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                // SAFETY: every CPU has the scalar tier.
                unsafe { Scalar(self).exp() }.0
            }
        }
    };
}

element!(f32, F32, Tier::lanes_f32);
// Vectors have at most 256 bits: see `stage!`.
element!(f64, F64, |tier: Tier| tier.lanes_f64().min(4));
