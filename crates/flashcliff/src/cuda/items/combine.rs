//! Sums of items, and items times factors.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use flashcliff_sys as sys;

use super::{ItemSizes, ItemTensor, Items, Target};
use crate::Error;
use crate::cuda::tensor::pointer;

/// A factor of each blade of each item, the same for all channels, in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFactors {
    /// The address; 0 for factors of 1.
    pub factors: CUdeviceptr,
    /// The elements from a blade to the next.
    pub blade_stride: usize,
    /// The elements from an item to the next.
    pub row_stride: usize,
}

impl ItemFactors {
    fn raw(self) -> sys::fc_item_factors {
        sys::fc_item_factors {
            factors: pointer::<c_void>(self.factors).cast_const(),
            blade_stride: self.blade_stride as i64,
            row_stride: self.row_stride as i64,
        }
    }
}

impl Items {
    /// `x` times factors plus `y`, where scalars have no factors; `None` stands for zeros. The result may lie where an input does.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn combine(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        x: Option<ItemTensor>,
        factors: ItemFactors,
        y: Option<ItemTensor>,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let (sizes, factors, to) = (self.sizes(sizes), factors.raw(), to.raw());
        let given = [x, y].map(|items| items.map(ItemTensor::raw));
        let [x, y] = given
            .each_ref()
            .map(|raw| raw.as_ref().map_or(ptr::null(), ptr::from_ref));
        target.launch("fc_item_combine", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_combine(&sizes, x, &factors, y, &to, stream) }
        })
    }
}
