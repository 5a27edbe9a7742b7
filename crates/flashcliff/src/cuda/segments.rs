//! Rows by their relations on a GPU: copies of what rows belong to, and sums over what belongs to rows. Each is the
//! gradient of the other. Also columns of matrices that lie apart.

use std::ffi::c_void;

use flashcliff_sys as sys;

use super::dtype::code;
use super::items::Target;
use super::tensor::pointer;
use crate::cuda::Address;
use crate::segments::Reduction;
use crate::{Dtype, Error};

/// The addresses of a relation: which of the targets each row belongs to, and the rows of each target. All numbers are `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The target of each row.
    pub target: Address,
    /// Where the rows of each target begin in `order`, and the number of rows.
    pub starts: Address,
    /// The rows of each target, ascending, one target after another.
    pub order: Address,
    /// The number of rows.
    pub rows: usize,
    /// The number of targets.
    pub targets: usize,
}

/// Tensors by their rows: `[outer, targets, inner]` and `[outer, rows, inner]`. 16-bit elements are computed in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related {
    /// The relation.
    pub of: Addresses,
    /// A relation of the same rows and targets that subtracts.
    pub minus: Option<Addresses>,
    /// What a sum is divided by.
    pub reduction: Reduction,
    /// The address of what is read.
    pub x: Address,
    /// The address of what is written.
    pub o: Address,
    /// The elements of the axes in front of the rows.
    pub outer: usize,
    /// The elements of the axes after the rows.
    pub inner: usize,
    /// The type of all elements.
    pub dtype: Dtype,
}

impl Addresses {
    fn raw(self) -> sys::fc_relation {
        sys::fc_relation {
            target: pointer::<u32>(self.target).cast_const(),
            starts: pointer::<u32>(self.starts).cast_const(),
            order: pointer::<u32>(self.order).cast_const(),
        }
    }
}

impl Related {
    fn raw(&self) -> sys::fc_segments {
        sys::fc_segments {
            x: pointer::<c_void>(self.x).cast_const(),
            o: pointer(self.o),
            of: self.of.raw(),
            minus: self.minus.map_or_else(Default::default, Addresses::raw),
            outer: self.outer as i64,
            rows: self.of.rows as i64,
            targets: self.of.targets as i64,
            inner: self.inner as i64,
            reduction: match self.reduction {
                Reduction::Sum => sys::fc_reduction::FC_REDUCTION_SUM,
                Reduction::Mean => sys::fc_reduction::FC_REDUCTION_MEAN,
                Reduction::RootCount => sys::fc_reduction::FC_REDUCTION_ROOT_COUNT,
            },
            dtype: code(self.dtype),
        }
    }
}

/// Writes for each row its target, less the other one, from `[outer, targets, inner]` to `[outer, rows, inner]`,
/// divided as the sum of the target is.
///
/// Nothing waits, nothing is allocated, and the call can be captured into a CUDA graph. Results are the same bit for bit every time.
///
/// # Errors
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for an address that is missing.
///
/// # Safety
/// Addresses are of memory on the device of the call that holds what the sizes say, aligned to an element, until the
/// work on the stream is done. The numbers of the relation are in range and fit each other. What is written overlaps
/// nothing that is read.
pub unsafe fn gather(target: Target<'_>, call: &Related) -> Result<(), Error> {
    let raw = call.raw();
    target.launch("fc_segment_gather", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_segment_gather(&raw, stream) }
    })
}

/// Writes for each target the sum over its rows, less that of the other relation, from `[outer, rows, inner]` to
/// `[outer, targets, inner]`. The order of a sum depends on sizes alone.
///
/// # Errors
/// The errors of [`gather`].
///
/// # Safety
/// The contract of [`gather`] holds.
pub unsafe fn segment_sum(target: Target<'_>, call: &Related) -> Result<(), Error> {
    let raw = call.raw();
    target.launch("fc_segment_sum", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_segment_sum(&raw, stream) }
    })
}

/// Writes the row with the largest value of each target, of `[outer, rows, inner]`, to the `u32` `[outer, targets, inner]` at an address:
/// [`NO_ROW`](crate::segments::NO_ROW) for a target without rows. Of equal values the lowest row is kept. A NaN is larger than any number.
///
/// # Errors
/// The errors of [`gather`]; `FC_ERROR_BAD_CALL` also for a reduction other than the sum, and for a relation that subtracts.
///
/// # Safety
/// The contract of [`gather`] holds, also for what is kept. The result of the call itself is not written.
pub unsafe fn largest(target: Target<'_>, call: &Related, kept: Address) -> Result<(), Error> {
    let (raw, kept) = (call.raw(), pointer::<u32>(kept));
    target.launch("fc_segment_largest", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_segment_largest(&raw, kept, stream) }
    })
}

/// Writes for each target the elements of the rows that [`largest`] kept, and 0 where no row is kept: from `[outer, rows, inner]` to
/// `[outer, targets, inner]`.
///
/// # Errors
/// The errors of [`largest`].
///
/// # Safety
/// The contract of [`largest`] holds, and rows that are kept are in range.
pub unsafe fn pick(target: Target<'_>, call: &Related, kept: Address) -> Result<(), Error> {
    let (raw, kept) = (call.raw(), pointer::<u32>(kept).cast_const());
    target.launch("fc_segment_pick", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_segment_pick(&raw, kept, stream) }
    })
}

/// Writes for each row the elements of its target for which [`largest`] kept the row, else 0: from `[outer, targets, inner]` to
/// `[outer, rows, inner]`. It is the adjoint of [`pick`].
///
/// # Errors
/// The errors of [`largest`].
///
/// # Safety
/// The contract of [`largest`] holds.
pub unsafe fn place(target: Target<'_>, call: &Related, kept: Address) -> Result<(), Error> {
    let (raw, kept) = (call.raw(), pointer::<u32>(kept).cast_const());
    target.launch("fc_segment_place", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_segment_place(&raw, kept, stream) }
    })
}

/// Columns of a matrix `[rows, columns]` in parts `[rows, columns of a part]`, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns<'a> {
    /// The address of the matrix.
    pub whole: Address,
    /// The address of each part, and its columns. At address 0 there is none.
    pub parts: &'a [(Address, usize)],
    /// The rows.
    pub rows: usize,
    /// The type of all elements.
    pub dtype: Dtype,
    /// Whether parts are written from the matrix, else the matrix from parts, with zeros for those that are not there.
    pub apart: bool,
}

impl Columns<'_> {
    /// The most parts of a call.
    pub const MOST_PARTS: usize = sys::FC_COLUMN_PARTS as usize;
}

/// Copies parts into their matrix, or back.
///
/// Nothing waits, nothing is allocated, and the call can be captured into a CUDA graph.
///
/// # Errors
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for more parts than [`Columns::MOST_PARTS`], and for a matrix at address 0.
///
/// # Safety
/// Addresses are of memory on the device of the call that holds what the sizes say, aligned to an element, until the
/// work on the stream is done. What is written overlaps nothing that is read.
pub unsafe fn copy_columns(target: Target<'_>, call: &Columns<'_>) -> Result<(), Error> {
    let mut raw = sys::fc_columns {
        whole: pointer(call.whole),
        rows: call.rows as i64,
        count: i32::try_from(call.parts.len()).unwrap_or(i32::MAX),
        apart: call.apart.into(),
        dtype: code(call.dtype),
        ..Default::default()
    };
    let places = raw.parts.iter_mut().zip(&mut raw.widths);
    for ((part, width), &(address, columns)) in places.zip(call.parts) {
        *part = pointer(address);
        *width = columns as i64;
    }
    target.launch("fc_copy_columns", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_copy_columns(&raw, stream) }
    })
}
