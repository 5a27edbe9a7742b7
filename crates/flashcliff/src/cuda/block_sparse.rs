//! Products with block-sparse matrices, such as the matrices of equivariant linear maps.

use std::ffi::c_void;

use flashcliff_sys as sys;

use super::dtype::code;
use super::items::Target;
use super::tensor::pointer;
use crate::cuda::Address;
use crate::{Dtype, Error};

/// Rows in device memory: an address that is a multiple of 16 bytes, and the elements from a row to the next, a multiple of 16 bytes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The address.
    pub elements: Address,
    /// The elements from a row to the next.
    pub stride: usize,
    /// `f32`; more than [`FEW_ROWS`] rows may have 16 bits, matrices may not.
    pub dtype: Dtype,
}

/// Groups of output units that depend on the same input units. A unit is [`UNIT`] neighbouring columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The address of `[count, GROUP_NUMBERS]` `i32`: of each group the place of its first input in `units`, the number of inputs, the
    /// place of its first output, the number of outputs, at most [`GROUP_UNITS`], and 1 for the first group with these outputs, else 0.
    pub groups: Address,
    /// The address of the same numbers in the memory of the host.
    pub sizes: usize,
    /// The address of the numbers of units, `i32`.
    pub units: Address,
    /// The groups.
    pub count: usize,
}

/// The columns of a unit.
pub const UNIT: usize = sys::FC_UNIT as usize;
/// Calls of more rows take rows of 16 bits too.
pub const FEW_ROWS: usize = sys::FC_BLOCK_FEW_ROWS as usize;
/// The most output units of a group.
pub const GROUP_UNITS: usize = sys::FC_GROUP_UNITS as usize;
/// The numbers that describe a group.
pub const GROUP_NUMBERS: usize = sys::FC_GROUP_NUMBERS as usize;
/// The most input units of a group of [`weights`].
pub const GROUP_INPUTS: usize = sys::FC_GROUP_INPUTS as usize;

impl Groups {
    fn raw(self) -> sys::fc_block_groups {
        sys::fc_block_groups {
            groups: pointer::<i32>(self.groups).cast_const(),
            sizes: self.sizes as *const i32,
            units: pointer::<i32>(self.units).cast_const(),
            count: self.count as i64,
        }
    }
}

/// `out = bias + x w`: rows times a matrix, of which only the blocks of groups are not zero. Factors are rounded to TF32, which has
/// all bits of 16-bit types, and sums are in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// The rows `[rows, inputs]`.
    pub x: Rows,
    /// The matrix `[inputs, outputs]`; transposed: `[outputs, inputs]`.
    pub weights: Rows,
    /// The address of `[outputs]`, or 0.
    pub bias: Address,
    /// The result `[rows, outputs]`. Columns of no group keep what they are.
    pub out: Rows,
    /// The rows.
    pub rows: usize,
    /// Whether the matrix is transposed in memory.
    pub transposed: bool,
    /// The groups.
    pub groups: Groups,
}

/// Launches a product.
///
/// # Errors
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for a missing or unaligned address.
///
/// # Safety
/// Addresses are of memory on the device of the call that holds what strides, rows and units reach, until the work on the stream is
/// done; the host's numbers of groups are there until the function returns. The result overlaps nothing else. No kernel just before the
/// call on the stream writes the device's numbers of groups: they are read before it has ended.
pub unsafe fn product(target: Target<'_>, product: Product) -> Result<(), Error> {
    let raw = sys::fc_block_sparse {
        x: pointer::<c_void>(product.x.elements).cast_const(),
        weights: pointer::<f32>(product.weights.elements).cast_const(),
        bias: pointer::<f32>(product.bias).cast_const(),
        out: pointer(product.out.elements),
        rows: product.rows as i64,
        x_stride: product.x.stride as i64,
        weights_stride: product.weights.stride as i64,
        out_stride: product.out.stride as i64,
        transposed: product.transposed.into(),
        x_dtype: code(product.x.dtype),
        out_dtype: code(product.out.dtype),
        groups: product.groups.raw(),
    };
    target.launch("fc_block_sparse_product", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_block_sparse_product(&raw, stream) }
    })
}

/// The gradients of the matrix of a [`Product`], `x^T gradient` of the blocks of groups, and of its bias, the sum of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The rows `[rows, inputs]`.
    pub x: Rows,
    /// The gradient of the result `[rows, outputs]`.
    pub gradient: Rows,
    /// The address of room for [`partials`] `f32`, a multiple of 16 bytes. It may be 0 if there are none.
    pub partials: Address,
    /// The gradient of the matrix `[inputs, outputs]`. Blocks of no group keep what they are.
    pub to: Rows,
    /// The address of the gradient of the bias `[outputs]`, a multiple of 16 bytes, or 0.
    pub of_bias: Address,
    /// The rows.
    pub rows: usize,
    /// The groups, with at most [`GROUP_INPUTS`] inputs each.
    pub groups: Groups,
}

/// The numbers that [`weights`] writes between its two steps.
pub fn partials(rows: usize, groups: usize) -> usize {
    // SAFETY: the function reads its arguments only.
    let count = unsafe { sys::fc_block_sparse_partials(rows as i64, groups as i64) };
    usize::try_from(count).unwrap_or(0)
}

/// Launches the gradients of a matrix and of a bias. Parts of the rows are summed in order.
///
/// # Errors
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for a missing or unaligned address.
///
/// # Safety
/// The contract of [`product`] holds.
pub unsafe fn weights(target: Target<'_>, weights: Weights) -> Result<(), Error> {
    let raw = sys::fc_block_sparse_gradient {
        x: pointer::<c_void>(weights.x.elements).cast_const(),
        gradient: pointer::<c_void>(weights.gradient.elements).cast_const(),
        partials: pointer(weights.partials),
        to: pointer(weights.to.elements),
        of_bias: pointer(weights.of_bias),
        rows: weights.rows as i64,
        x_stride: weights.x.stride as i64,
        gradient_stride: weights.gradient.stride as i64,
        to_stride: weights.to.stride as i64,
        x_dtype: code(weights.x.dtype),
        gradient_dtype: code(weights.gradient.dtype),
        groups: weights.groups.raw(),
    };
    target.launch("fc_block_sparse_weights", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_block_sparse_weights(&raw, stream) }
    })
}
