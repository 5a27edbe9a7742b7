//! The element types that both candle and the core can compute with.

use candle_core::CpuStorage;

/// An element type of candle tensors that the core has kernels for: `f32` and `f64`.
pub trait Scalar: candle_core::WithDType + flashcliff::Element + super::scratch::Pooled {
    /// The square root.
    fn root(self) -> Self;

    /// The exponential.
    fn exponential(self) -> Self;

    /// The elements of a storage of this type, for writing.
    fn elements_mut(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

macro_rules! scalar {
    ($type:ty, $variant:ident) => {
        impl Scalar for $type {
            // Loops that call it are compiled for the vectors of a CPU.
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }

            fn exponential(self) -> Self {
                self.exp()
            }

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
