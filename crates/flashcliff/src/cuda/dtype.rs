//! Element types on the device.

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};
use flashcliff_sys as sys;
use half::{bf16, f16};

use crate::Dtype;
use crate::operator::TensorSpec;

mod private {
    pub trait Sealed {}
}

/// An element type that tensors on the device may have: `f32`, `f64`, [`bf16`] or [`struct@f16`].
pub trait DeviceElement:
    DeviceRepr + ValidAsZeroBits + Copy + Default + Send + Sync + 'static + private::Sealed
{
    /// The name of the type at run time.
    const DTYPE: Dtype;
}

macro_rules! element {
    ($($type:ty => $dtype:ident),*) => {$(
        impl private::Sealed for $type {}

        impl DeviceElement for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

element!(f32 => F32, f64 => F64, bf16 => Bf16, f16 => F16);

impl Dtype {
    /// The number of this type that is nearest to a number.
    pub fn nearest(self, value: f64) -> f64 {
        match self {
            Self::F64 => value,
            Self::F32 => f64::from(value as f32),
            Self::Bf16 => bf16::from_f64(value).to_f64(),
            Self::F16 => f16::from_f64(value).to_f64(),
        }
    }
}

/// The element types of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dtypes {
    /// The type of the tensors that have a batch axis.
    pub lanes: Dtype,
    /// The type of the parameters: that of `lanes`, or `F32` if `lanes` is a 16-bit type.
    pub params: Dtype,
}

impl Dtypes {
    /// One type for all tensors.
    pub const fn uniform(dtype: Dtype) -> Self {
        Self {
            lanes: dtype,
            params: dtype,
        }
    }

    /// The type in which the call is computed. The saved row sums have this type too.
    pub const fn arithmetic(self) -> Dtype {
        self.lanes.arithmetic()
    }

    /// How many elements of the arithmetic type hold `lanes` elements of the type of the lanes, rounded up.
    pub(crate) const fn kept_len(self, lanes: usize) -> usize {
        (lanes * self.lanes.bytes()).div_ceil(self.arithmetic().bytes())
    }

    /// The type of a tensor of an operator.
    pub(crate) fn of(self, spec: &TensorSpec) -> Dtype {
        match spec.is_parameter() {
            true => self.params,
            false => self.lanes,
        }
    }

    /// Whether there are kernels for this pair of types.
    pub(crate) fn are_supported(self) -> bool {
        self.params == self.lanes || self.params == self.arithmetic()
    }
}

/// The code of an element type in the kernel library.
pub(crate) fn code(dtype: Dtype) -> sys::fc_dtype {
    match dtype {
        Dtype::F32 => sys::fc_dtype::FC_F32,
        Dtype::F64 => sys::fc_dtype::FC_F64,
        Dtype::Bf16 => sys::fc_dtype::FC_BF16,
        Dtype::F16 => sys::fc_dtype::FC_F16,
    }
}
