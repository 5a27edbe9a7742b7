//! Tensors and buffers of the caller, checked before they are borrowed.

use std::ffi::c_void;

use flashcliff::host_memory::Spans;

use crate::status::Failure;

/// `fc_tensor`: the elements and the shape of an input.
#[repr(C)]
pub struct Tensor {
    data: *const c_void,
    shape: *const usize,
    axes: usize,
}

/// # Safety
/// At `start` there are `len` values, which nobody writes during `'a`; or `len` is 0; or `start` is null.
pub(crate) unsafe fn slice<'a, T>(
    name: &str,
    start: *const T,
    len: usize,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Failure::null(name));
    }
    if !start.is_aligned() {
        return Err(Failure::Argument(format!(
            "{name}: expected an address that is a multiple of {}, got {start:?}",
            align_of::<T>()
        )));
    }
    // SAFETY: the caller promises the values. The pointer is aligned and not null.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

/// The addresses of the inputs and their shapes.
pub(crate) struct Inputs<'a> {
    pub(crate) data: Vec<*const c_void>,
    pub(crate) shapes: Vec<&'a [usize]>,
}

/// # Safety
/// At `inputs` there are `count` tensors, whose shapes are as long as they say.
pub(crate) unsafe fn inputs<'a>(
    inputs: *const Tensor,
    count: usize,
) -> Result<Inputs<'a>, Failure> {
    // SAFETY: the caller promises it.
    let tensors = unsafe { slice("inputs", inputs, count) }?;
    let shapes = tensors.iter().map(|tensor| {
        // SAFETY: the caller promises it.
        unsafe { slice("shape", tensor.shape, tensor.axes) }
    });
    Ok(Inputs {
        shapes: shapes.collect::<Result<_, _>>()?,
        data: tensors.iter().map(|tensor| tensor.data).collect(),
    })
}

/// Notes memory of a call.
///
/// # Errors
/// Null where there are elements, and what [`Spans::add`] refuses.
pub(crate) fn note<'a>(
    spans: &mut Spans<'a>,
    data: *const c_void,
    len: usize,
    name: &'a str,
    written: bool,
) -> Result<(), Failure> {
    if len > 0 && data.is_null() {
        return Err(Failure::null(name));
    }
    Ok(spans.add(data.addr(), len, name, written)?)
}
