//! Dropout of grades, as [`crate::dropout`] has it, on a GPU.

use flashcliff_sys as sys;

use super::dtype::code;
use super::items::Target;
use super::tensor::pointer;
use crate::cuda::Address;
use crate::dropout::GradeDropout;
use crate::{Dtype, Error};

/// Items as the rows of a matrix `[rows, width]`, the channels of each blade side by side and then the scalars, and
/// what is dropped of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Droppable {
    /// The probability and the key.
    pub dropout: GradeDropout,
    /// The address of the step, an `u32`.
    pub step: Address,
    /// The address of the items; 0 stands for ones.
    pub x: Address,
    /// The address of the results; it may be that of the items.
    pub to: Address,
    /// The items.
    pub rows: usize,
    /// The multivector channels of an item.
    pub channels: usize,
    /// The scalar channels of an item.
    pub scalars: usize,
    /// The type of all elements. 16-bit elements are computed in `f32`.
    pub dtype: Dtype,
}

/// Writes what is left of the items: `stops` has for each grade the number of the blade after its last one, ascending.
/// The step is read when the work runs, so a captured call drops others each time it is counted on.
///
/// Nothing waits, nothing is allocated, and the call can be captured into a CUDA graph.
///
/// # Errors
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for an address that is missing, and for no grade or more than nine.
///
/// # Safety
/// Addresses are of memory on the device of the call that holds what the sizes reach, aligned to an element, until
/// the work on the stream is done. The results overlap the step not at all, and the items not at all or exactly.
pub unsafe fn drop_grades(
    target: Target<'_>,
    stops: &[usize],
    call: Droppable,
) -> Result<(), Error> {
    let mut raw = sys::fc_dropout {
        x: pointer::<std::ffi::c_void>(call.x).cast_const(),
        to: pointer(call.to),
        step: pointer::<u32>(call.step).cast_const(),
        rows: call.rows as i64,
        channels: call.channels as i64,
        scalars: call.scalars as i64,
        key: call.dropout.key,
        threshold: call.dropout.threshold,
        scale: call.dropout.scale,
        grades: stops.len() as i32,
        dtype: code(call.dtype),
        ..Default::default()
    };
    for (to, &stop) in raw.stops.iter_mut().zip(stops) {
        *to = stop as i32;
    }
    target.launch("fc_drop", |stream| {
        // SAFETY: the caller promises it; the structure lives until the function returns.
        unsafe { sys::fc_drop(&raw, stream) }
    })
}
