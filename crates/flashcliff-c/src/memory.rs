//! Tensors and buffers of the caller, checked before they are borrowed.

use std::ffi::c_void;
use std::ops::Range;

use flashcliff::{Error, Operator};

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

/// The memory of a call: no null, no odd address, and nothing that is written overlaps anything else.
pub(crate) struct Spans<'a> {
    operator: &'a Operator,
    element: usize,
    spans: Vec<(Range<usize>, &'a str, bool)>,
}

impl<'a> Spans<'a> {
    pub(crate) fn new<T>(operator: &'a Operator) -> Self {
        Self {
            operator,
            element: size_of::<T>(),
            spans: Vec::with_capacity(8),
        }
    }

    pub(crate) fn add(
        &mut self,
        data: *const c_void,
        len: usize,
        name: &'a str,
        written: bool,
    ) -> Result<(), Failure> {
        if len == 0 {
            return Ok(());
        }
        if data.is_null() {
            return Err(Failure::null(name));
        }
        let start = data.addr();
        let end = len
            .checked_mul(self.element)
            .and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if start.is_multiple_of(self.element) => {
                self.spans.push((start..end, name, written));
                Ok(())
            }
            _ => Err(Error::BadAddress {
                operator: self.operator.name().to_owned(),
                tensor: name.to_owned(),
                expected: self.element,
                got: start as u64,
            }
            .into()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        for (at, (span, first, written)) in self.spans.iter().enumerate() {
            let mut others = self.spans.iter().enumerate();
            let overlapping = others.find(|(other, (range, ..))| {
                *other != at && span.start < range.end && range.start < span.end
            });
            if let (true, Some((_, (_, second, _)))) = (*written, overlapping) {
                return Err(Error::Aliased {
                    operator: self.operator.name().to_owned(),
                    first: (*first).to_owned(),
                    second: (*second).to_owned(),
                }
                .into());
            }
        }
        Ok(())
    }
}
