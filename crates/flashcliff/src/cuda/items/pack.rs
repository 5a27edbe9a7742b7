//! Matrices from the parameters of layers, and the gradients of parameters from the gradients of matrices.

use std::ffi::c_void;

use flashcliff_sys as sys;

use super::{Items, Target};
use crate::cuda::Address;
use crate::cuda::dtype::code;
use crate::cuda::tensor::pointer;
use crate::{Dtype, Error};

/// Sums of a few numbers, each times a factor: `to[i]` is the sum over uses `u` of `factors[u][i] * from[places[u][i]]`.
///
/// So the elements of a matrix come from the parameters of layers, and the gradients of parameters from the gradients of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The address of the numbers.
    pub from: Address,
    /// The address of the places of what is summed, `[uses, count]` `i32`.
    pub places: Address,
    /// The address of the factors, `[uses, count]`. A number whose factor is 0 is not read.
    pub factors: Address,
    /// The address of the results, `[count]`.
    pub to: Address,
    /// The results.
    pub count: usize,
    /// The numbers of a sum.
    pub uses: usize,
    /// The type of all numbers and factors. 16-bit numbers are added in `f32`.
    pub dtype: Dtype,
}

impl Items {
    /// The most tensors of [`Items::pack_tensors`].
    pub const MOST_TENSORS: usize = sys::FC_ITEM_TENSORS as usize;
    /// The bits of a place among several tensors that say where in a tensor it is.
    pub const PLACE_BITS: u32 = sys::FC_ITEM_PLACE_BITS;

    /// Writes sums of a few numbers.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and each place is the place of a number.
    pub unsafe fn pack(target: Target<'_>, pack: Pack) -> Result<(), Error> {
        let raw = raw_pack(pack);
        target.launch("fc_item_packed", |stream| {
            // SAFETY: the caller promises it; the structure lives until the function returns.
            unsafe { sys::fc_item_packed(&raw, stream) }
        })
    }

    /// Writes sums of a few numbers in several tensors, at most [`Items::MOST_TENSORS`]: a place is the number of a tensor, shifted by
    /// [`Items::PLACE_BITS`], plus the place in it. `from` is not read.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and each place is the place of a number.
    pub unsafe fn pack_tensors(
        target: Target<'_>,
        pack: Pack,
        tensors: &[Address],
    ) -> Result<(), Error> {
        let raw = raw_pack(pack);
        let tensors: Vec<*const c_void> = tensors
            .iter()
            .map(|&at| pointer::<c_void>(at).cast_const())
            .collect();
        // More tensors than a call takes are an error of the function.
        let count = i32::try_from(tensors.len()).unwrap_or(i32::MAX);
        target.launch("fc_item_packed_tensors", |stream| {
            // SAFETY: the caller promises it; the structure and the list live until the function returns.
            unsafe { sys::fc_item_packed_tensors(&raw, tensors.as_ptr(), count, stream) }
        })
    }
}

fn raw_pack(pack: Pack) -> sys::fc_item_pack {
    sys::fc_item_pack {
        from: pointer(pack.from),
        places: pointer::<i32>(pack.places).cast_const(),
        factors: pointer(pack.factors),
        to: pointer(pack.to),
        count: pack.count as i64,
        uses: pack.uses as i64,
        dtype: code(pack.dtype),
    }
}
