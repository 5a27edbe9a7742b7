//! A call of XLA, read with checks.

use std::ffi::{c_int, c_void};
use std::ptr;

use flashcliff::Dtype;

use super::abi::{
    self, Api, Attributes, BUFFER, Buffer, DestroyError, Frame, GetOrdinal, GetStream, TEXT, Text,
    Values, element,
};
use super::failure::Failure;
use crate::convert::{Gpu, Space, View};

/// The alignment of a workspace. XLA aligns arrays to fewer bytes, so workspaces are larger by as many.
pub(super) const ALIGNMENT: usize = 256;

/// The address of a list of `i32`, and its length.
pub(super) type List = (usize, usize);

/// Arguments or results by their element types, each kind in order.
pub(super) struct Arrays {
    pub(super) tensors: Vec<View>,
    /// Lists of `i32`.
    pub(super) lists: Vec<List>,
    /// Arrays of bytes: what a pass keeps for another, and workspaces.
    pub(super) bytes: Vec<Space>,
}

/// A call that XLA makes.
pub(super) struct Call<'a> {
    frame: &'a Frame,
    api: &'a Api,
}

impl<'a> Call<'a> {
    /// # Safety
    /// The frame is one that the runtime made, and so is all that it points to.
    pub(super) unsafe fn new(frame: &'a Frame, api: &'a Api) -> Self {
        Self { frame, api }
    }

    /// The arguments, which are all tensors.
    pub(super) fn inputs(&self) -> Result<Vec<View>, Failure> {
        let views = buffers(&self.frame.arguments)?.into_iter();
        views.map(view).collect()
    }

    /// The arguments of any kind.
    pub(super) fn arguments(&self) -> Result<Arrays, Failure> {
        Arrays::of(&self.frame.arguments)
    }

    /// The results of any kind.
    pub(super) fn results(&self) -> Result<Arrays, Failure> {
        Arrays::of(&self.frame.results)
    }

    /// The results: tensors, then the bytes of the workspace, if there is one.
    pub(super) fn outputs(&self) -> Result<(Vec<View>, Space), Failure> {
        let mut buffers = buffers(&self.frame.results)?;
        let bytes = buffers.pop_if(|last| last.element == element::U8);
        let space = bytes.map(raw).transpose()?;
        let views = buffers.into_iter().map(view).collect::<Result<_, _>>()?;
        Ok((views, aligned(space.unwrap_or_default())))
    }

    /// An attribute that is a text.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, Failure> {
        let found = attributes(&self.frame.attributes);
        let found = found
            .into_iter()
            .find(|(known, ..)| *known == name.as_bytes());
        let text = found.and_then(|(_, kind, value)| {
            // SAFETY: the runtime made the attribute, which is of the kind that it says.
            (kind == TEXT).then(|| unsafe { bytes(value.cast()) })
        });
        let text = text.and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.ok_or_else(|| Failure::refused(format!("expected the attribute `{name}`, a text")))
    }

    /// The GPU of the call, and its stream.
    pub(super) fn gpu(&self, tf32: bool) -> Result<Gpu, Failure> {
        if self.api.size < size_of::<Api>() {
            return Err(Failure::refused(
                "this version of JAX does not say which GPU a call is for: install jax 0.6 or later"
                    .to_owned(),
            ));
        }
        let mut stream = GetStream {
            size: size_of::<GetStream>(),
            extension: ptr::null_mut(),
            context: self.frame.context,
            stream: ptr::null_mut(),
        };
        let mut ordinal = GetOrdinal {
            size: size_of::<GetOrdinal>(),
            extension: ptr::null_mut(),
            context: self.frame.context,
            ordinal: 0,
        };
        // SAFETY: these are functions of the runtime, and the context is that of the call.
        unsafe {
            self.done("stream", (self.api.get_stream)(&raw mut stream))?;
            self.done("GPU", (self.api.get_ordinal)(&raw mut ordinal))?;
        }
        let ordinal = usize::try_from(ordinal.ordinal);
        Ok(Gpu {
            ordinal: ordinal.map_err(|_| Failure::defect("XLA says no GPU".to_owned()))?,
            stream: stream.stream.expose_provenance(),
            tf32,
        })
    }

    /// # Safety
    /// The error is one that the runtime gave, or null.
    unsafe fn done(&self, what: &str, error: *mut abi::Error) -> Result<(), Failure> {
        if error.is_null() {
            return Ok(());
        }
        let mut arguments = DestroyError {
            size: size_of::<DestroyError>(),
            extension: ptr::null_mut(),
            error,
        };
        // SAFETY: the caller promises it, and nobody uses the error afterwards.
        unsafe { (self.api.destroy_error)(&raw mut arguments) };
        Err(Failure::defect(format!(
            "XLA does not say which {what} a call is for"
        )))
    }
}

impl Arrays {
    fn of(values: &Values) -> Result<Self, Failure> {
        let mut made = Self {
            tensors: Vec::new(),
            lists: Vec::new(),
            bytes: Vec::new(),
        };
        for buffer in buffers(values)? {
            match buffer.element {
                element::S32 => made
                    .lists
                    .push((buffer.data.expose_provenance(), count(buffer)?)),
                element::U8 => made.bytes.push(raw(buffer)?),
                _ => made.tensors.push(view(buffer)?),
            }
        }
        Ok(made)
    }
}

/// At `start` there are `count` elements, unless it is none.
///
/// # Safety
/// The runtime says both, and they hold while the slice is used.
unsafe fn slice<'a, T>(start: *const T, count: i64) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: the caller promises it.
        Ok(count) if count > 0 && !start.is_null() => unsafe {
            std::slice::from_raw_parts(start, count)
        },
        _ => &[],
    }
}

fn buffers(values: &Values) -> Result<Vec<&Buffer>, Failure> {
    // SAFETY: the runtime made the lists.
    let (kinds, values) = unsafe {
        (
            slice(values.kinds, values.count),
            slice(values.values, values.count),
        )
    };
    let read = kinds.iter().zip(values).map(|(&kind, &value)| {
        let wrong = || Failure::refused("expected arrays as arguments and results".to_owned());
        // SAFETY: the runtime says that it is a buffer.
        let buffer = (kind == BUFFER).then(|| unsafe { &*value.cast::<Buffer>() });
        buffer.ok_or_else(wrong)
    });
    read.collect()
}

fn shape(buffer: &Buffer) -> Result<Vec<usize>, Failure> {
    // SAFETY: the runtime made the list.
    let dims = unsafe { slice(buffer.dims, buffer.rank) };
    let sizes = dims.iter().map(|&size| usize::try_from(size));
    let sizes = sizes.collect::<Result<_, _>>();
    sizes.map_err(|_| Failure::refused(format!("expected axes of known sizes, got {dims:?}")))
}

fn count(buffer: &Buffer) -> Result<usize, Failure> {
    Ok(shape(buffer)?.iter().product())
}

fn view(buffer: &Buffer) -> Result<View, Failure> {
    Ok(View {
        address: buffer.data.expose_provenance(),
        shape: shape(buffer)?,
        dtype: dtype(buffer.element)?,
    })
}

fn raw(buffer: &Buffer) -> Result<Space, Failure> {
    Ok(Space {
        address: buffer.data.expose_provenance(),
        bytes: count(buffer)?,
    })
}

/// The aligned part of a workspace.
pub(super) fn aligned(own: Space) -> Space {
    let address = own.address.next_multiple_of(ALIGNMENT);
    Space {
        address,
        bytes: own.bytes.saturating_sub(address - own.address),
    }
}

fn dtype(number: c_int) -> Result<Dtype, Failure> {
    match number {
        element::F32 => Ok(Dtype::F32),
        element::F64 => Ok(Dtype::F64),
        element::BF16 => Ok(Dtype::Bf16),
        element::F16 => Ok(Dtype::F16),
        other => Err(Failure::refused(format!(
            "expected f32, f64, bf16 or f16, got the element type {other} of XLA"
        ))),
    }
}

/// Names, kinds and values of attributes.
fn attributes(of: &Attributes) -> Vec<(&[u8], c_int, *const c_void)> {
    // SAFETY: the runtime made the lists.
    let (names, kinds, values) = unsafe {
        (
            slice(of.names, of.count),
            slice(of.kinds, of.count),
            slice(of.values, of.count),
        )
    };
    let named = names.iter().zip(kinds).zip(values);
    // SAFETY: the same holds for each name.
    let named = named.map(|((&name, &kind), &value)| (unsafe { bytes(name) }, kind, value));
    named.collect()
}

/// # Safety
/// The text is one of the runtime.
unsafe fn bytes<'a>(text: *const Text) -> &'a [u8] {
    // SAFETY: the caller promises it.
    let text = unsafe { &*text };
    if text.len == 0 {
        return &[];
    }
    // SAFETY: the same holds.
    unsafe { std::slice::from_raw_parts(text.start.cast(), text.len) }
}
