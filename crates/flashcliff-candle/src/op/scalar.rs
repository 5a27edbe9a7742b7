//! The element types that both candle and the core can compute with.

use candle_core::CpuStorage;

/// An element type of candle tensors that the core has kernels for: `f32` and `f64`.
pub trait Scalar: candle_core::WithDType + flashcliff_network::Number {
    /// The elements of a storage of this type, for writing.
    fn elements_mut(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

macro_rules! scalar {
    ($type:ty, $variant:ident) => {
        impl Scalar for $type {
            fn elements_mut(storage: &mut CpuStorage) -> Option<&mut [Self]> {
                match storage {
                    CpuStorage::$variant(data) => Some(data),
                    _ => None,
                }
            }
        }
    };
}

scalar!(f32, F32);
scalar!(f64, F64);
