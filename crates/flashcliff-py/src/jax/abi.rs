//! The part of XLA's C interface for foreign functions that handlers use: layouts of `xla/ffi/api/c_api.h`, which comes with jaxlib.
//!
//! Major version 0 of the interface only ever adds fields at the end of structs. Each struct begins with its size,
//! which says how much of it there is, so one build serves every version of JAX.

use std::ffi::{c_char, c_int, c_void};

/// The version of the interface that this file describes.
pub(super) const MAJOR: c_int = 0;
/// The minor version that is named to a runtime that does not say its own.
pub(super) const MINOR: c_int = 1;

/// The kind of the extension that asks a handler what it is.
pub(super) const METADATA: c_int = 1;
/// The kind of an argument or a result that is a buffer.
pub(super) const BUFFER: c_int = 1;
/// The kind of an attribute that is a text.
pub(super) const TEXT: c_int = 4;
/// The stage in which a handler computes.
pub(super) const EXECUTE: c_int = 3;

/// The trait of a handler that launches the same work in every call, so that it may be recorded and replayed.
pub(super) const REPLAYABLE: u32 = 1;

/// Codes of errors.
pub(super) mod code {
    use std::ffi::c_int;

    pub(in super::super) const INVALID_ARGUMENT: c_int = 3;
    pub(in super::super) const RESOURCE_EXHAUSTED: c_int = 8;
    pub(in super::super) const UNIMPLEMENTED: c_int = 12;
    pub(in super::super) const INTERNAL: c_int = 13;
}

/// Numbers of element types.
pub(super) mod element {
    use std::ffi::c_int;

    pub(in super::super) const S32: c_int = 4;
    pub(in super::super) const U8: c_int = 6;
    pub(in super::super) const F16: c_int = 10;
    pub(in super::super) const F32: c_int = 11;
    pub(in super::super) const F64: c_int = 12;
    pub(in super::super) const BF16: c_int = 16;
}

/// The start of every extension of a struct.
#[repr(C)]
pub(super) struct Extension {
    pub(super) size: usize,
    pub(super) kind: c_int,
    pub(super) next: *mut Extension,
}

#[repr(C)]
pub(super) struct Version {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) major: c_int,
    pub(super) minor: c_int,
}

/// What a handler says of itself. Later fields are left as they are.
#[repr(C)]
pub(super) struct Metadata {
    pub(super) size: usize,
    pub(super) version: Version,
    pub(super) traits: u32,
}

#[repr(C)]
pub(super) struct MetadataExtension {
    pub(super) base: Extension,
    pub(super) metadata: *mut Metadata,
}

#[repr(C)]
pub(super) struct Text {
    pub(super) start: *const c_char,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct Buffer {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) element: c_int,
    pub(super) data: *mut c_void,
    pub(super) rank: i64,
    pub(super) dims: *const i64,
}

/// Arguments, or results.
#[repr(C)]
pub(super) struct Values {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) count: i64,
    pub(super) kinds: *const c_int,
    pub(super) values: *const *const c_void,
}

#[repr(C)]
pub(super) struct Attributes {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) count: i64,
    pub(super) kinds: *const c_int,
    pub(super) names: *const *const Text,
    pub(super) values: *const *const c_void,
}

/// A call.
#[repr(C)]
pub(super) struct Frame {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) api: *const Api,
    pub(super) context: *mut c_void,
    pub(super) stage: c_int,
    pub(super) arguments: Values,
    pub(super) results: Values,
    pub(super) attributes: Attributes,
}

#[repr(C)]
pub(super) struct CreateError {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) message: *const c_char,
    pub(super) code: c_int,
}

#[repr(C)]
pub(super) struct GetStream {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) context: *mut c_void,
    /// Written by the runtime.
    pub(super) stream: *mut c_void,
}

#[repr(C)]
pub(super) struct GetOrdinal {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) context: *mut c_void,
    /// Written by the runtime.
    pub(super) ordinal: i32,
}

#[repr(C)]
pub(super) struct DestroyError {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) error: *mut Error,
}

/// An error of the runtime.
pub(super) enum Error {}

/// The functions of the runtime. Those between are not called.
#[repr(C)]
pub(super) struct Api {
    pub(super) size: usize,
    pub(super) extension: *mut Extension,
    pub(super) version: Version,
    pub(super) internal: *const c_void,
    pub(super) create_error: unsafe extern "C" fn(*mut CreateError) -> *mut Error,
    pub(super) get_message: *const c_void,
    pub(super) destroy_error: unsafe extern "C" fn(*mut DestroyError),
    pub(super) register: *const c_void,
    pub(super) get_stream: unsafe extern "C" fn(*mut GetStream) -> *mut Error,
    /// Types, states, memory, threads, futures, numbers of runs.
    pub(super) between: [*const c_void; 12],
    pub(super) get_ordinal: unsafe extern "C" fn(*mut GetOrdinal) -> *mut Error,
}

/// A function that the runtime calls.
pub(super) type Handler = unsafe extern "C" fn(*mut Frame) -> *mut Error;
