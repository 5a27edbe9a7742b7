//! Tensors and buffers of the caller, checked before they are borrowed.

use std::ffi::c_void;

use flashcliff::host_memory::Spans;
use flashcliff::{Element, Error, Operator, memory};

use crate::status::Failure;

/// `fc_tensor`: the elements and the shape of an input.
#[repr(C)]
pub struct Tensor {
    data: *const c_void,
    shape: *const usize,
    axes: usize,
}

#[cfg(test)]
impl Tensor {
    pub(crate) fn of(data: *const c_void, shape: *const usize, axes: usize) -> Self {
        Self { data, shape, axes }
    }
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
    let largest = isize::MAX as usize / size_of::<T>().max(1);
    if len > largest {
        return Err(Failure::Argument(format!(
            "{name}: expected at most {largest} elements, got {len}"
        )));
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

/// The inputs of an operator. Their number and that of their axes are compared with what the operator has before
/// anything is read: a number that is wrong leads beyond the memory of the caller.
///
/// # Safety
/// At `inputs` there are `count` tensors, whose shapes are as long as they say.
pub(crate) unsafe fn inputs<'a>(
    operator: &Operator,
    inputs: *const Tensor,
    count: usize,
) -> Result<Inputs<'a>, Failure> {
    let expected = operator.inputs();
    if count != expected.len() {
        let names: Vec<&str> = expected.iter().map(|spec| spec.name).collect();
        return Err(Failure::Library(Error::TensorCount {
            operator: operator.name().to_owned(),
            what: "inputs",
            expected: expected.len(),
            names: names.join(", "),
            got: count,
        }));
    }
    // SAFETY: the caller promises it.
    let tensors = unsafe { slice("inputs", inputs, count) }?;
    let shapes = tensors.iter().zip(expected).map(|(tensor, spec)| {
        if tensor.axes != spec.dims.len() {
            return Err(Failure::Argument(format!(
                "{}: tensor `{}` must have {} axes, got {}",
                operator.name(),
                spec.name,
                spec.dims.len(),
                tensor.axes
            )));
        }
        // SAFETY: the caller promises it.
        unsafe { slice("shape", tensor.shape, tensor.axes) }
    });
    Ok(Inputs {
        shapes: shapes.collect::<Result<_, _>>()?,
        data: tensors.iter().map(|tensor| tensor.data).collect(),
    })
}

/// New memory of a call. What there is no room for is an error: an allocation that fails would end the program.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn workspace<T: Element>(operator: &Operator, len: usize) -> Result<Vec<T>, Failure> {
    let bytes = len as u128 * size_of::<T>() as u128;
    let what = format!("{}: the workspace", operator.name());
    memory::check(&what, bytes, |_| "make the batch smaller".to_owned())?;
    Ok(vec![T::default(); len])
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
