//! Changes of tensors in place, on the CPU.

use std::cell::Cell;
use std::marker::PhantomData;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor};

use super::Scalar;
use crate::Error;

/// A function of the elements of a tensor, as an operation of candle.
struct InPlace<T, F> {
    /// The function, until it is called.
    change: Cell<Option<F>>,
    element: PhantomData<T>,
}

/// Calls a function with the elements of a contiguous tensor on the CPU, which it may change. Nothing is allocated.
///
/// # Errors
/// A tensor of another type or device, or one that is not contiguous.
pub(crate) fn change<T: Scalar>(
    tensor: &Tensor,
    change: impl FnOnce(&mut [T]),
) -> Result<(), Error> {
    let op = InPlace {
        change: Cell::new(Some(change)),
        element: PhantomData::<T>,
    };
    Ok(tensor.inplace_op1(&op)?)
}

impl<T: Scalar, F: FnOnce(&mut [T])> InplaceOp1 for InPlace<T, F> {
    fn name(&self) -> &'static str {
        "in_place"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            return Err(candle_core::Error::RequiresContiguous { op: "in_place" });
        };
        let got = storage.dtype();
        let Some(elements) = T::elements_mut(storage) else {
            return Err(candle_core::Error::UnexpectedDType {
                msg: "in_place",
                expected: <T as candle_core::WithDType>::DTYPE,
                got,
            });
        };
        if let Some(change) = self.change.take() {
            change(&mut elements[start..end]);
        }
        Ok(())
    }
}
