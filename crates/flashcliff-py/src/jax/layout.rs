//! What `abi` says of XLA's C interface, by the names of its header, so that a test compares both.

use std::mem::offset_of;

use pyo3::prelude::*;

use super::abi::{
    self, Api, Attributes, Buffer, CreateError, DestroyError, Extension, Frame, GetOrdinal,
    GetStream, Metadata, MetadataExtension, Text, Values, Version, code, element,
};

/// A field: the struct and its name in the header, where it begins, and its size.
type Field = (&'static str, &'static str, usize, usize);

/// The size of what a field has.
const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The fields of structs, with their names in the header.
macro_rules! fields {
    ($($own:ty = $theirs:literal { $($field:ident: $name:literal),* $(,)? })*) => {
        [$($((
            $theirs,
            $name,
            offset_of!($own, $field),
            size_of_field(|own: &$own| &own.$field),
        )),*),*]
    };
}

/// All fields but the functions that are not called.
fn fields() -> Vec<Field> {
    fields! {
        Extension = "XLA_FFI_Extension_Base" { size: "struct_size", kind: "type", next: "next" }
        Version = "XLA_FFI_Api_Version" {
            size: "struct_size", extension: "extension_start", major: "major_version", minor: "minor_version",
        }
        Metadata = "XLA_FFI_Metadata" { size: "struct_size", version: "api_version", traits: "traits" }
        MetadataExtension = "XLA_FFI_Metadata_Extension" { base: "extension_base", metadata: "metadata" }
        Text = "XLA_FFI_ByteSpan" { start: "ptr", len: "len" }
        Buffer = "XLA_FFI_Buffer" {
            size: "struct_size", extension: "extension_start", element: "dtype", data: "data", rank: "rank", dims: "dims",
        }
        Values = "XLA_FFI_Args" {
            size: "struct_size", extension: "extension_start", count: "size", kinds: "types", values: "args",
        }
        Values = "XLA_FFI_Rets" {
            size: "struct_size", extension: "extension_start", count: "size", kinds: "types", values: "rets",
        }
        Attributes = "XLA_FFI_Attrs" {
            size: "struct_size", extension: "extension_start", count: "size", kinds: "types", names: "names",
            values: "attrs",
        }
        Frame = "XLA_FFI_CallFrame" {
            size: "struct_size", extension: "extension_start", api: "api", context: "ctx", stage: "stage",
            arguments: "args", results: "rets", attributes: "attrs",
        }
        CreateError = "XLA_FFI_Error_Create_Args" {
            size: "struct_size", extension: "extension_start", message: "message", code: "errc",
        }
        DestroyError = "XLA_FFI_Error_Destroy_Args" {
            size: "struct_size", extension: "extension_start", error: "error",
        }
        GetStream = "XLA_FFI_Stream_Get_Args" {
            size: "struct_size", extension: "extension_start", context: "ctx", stream: "stream",
        }
        GetOrdinal = "XLA_FFI_DeviceOrdinal_Get_Args" {
            size: "struct_size", extension: "extension_start", context: "ctx", ordinal: "device_ordinal",
        }
        Api = "XLA_FFI_Api" {
            size: "struct_size", extension: "extension_start", version: "api_version", internal: "internal_api",
            create_error: "XLA_FFI_Error_Create", get_message: "XLA_FFI_Error_GetMessage",
            destroy_error: "XLA_FFI_Error_Destroy", register: "XLA_FFI_Handler_Register",
            get_stream: "XLA_FFI_Stream_Get", get_ordinal: "XLA_FFI_DeviceOrdinal_Get",
        }
    }
    .to_vec()
}

/// Constants, with their names in the header.
fn constants() -> Vec<(&'static str, i64)> {
    let numbers = [
        ("XLA_FFI_API_MAJOR", abi::MAJOR),
        ("XLA_FFI_Extension_Metadata", abi::METADATA),
        ("XLA_FFI_ArgType_BUFFER", abi::BUFFER),
        ("XLA_FFI_RetType_BUFFER", abi::BUFFER),
        ("XLA_FFI_AttrType_STRING", abi::TEXT),
        ("XLA_FFI_ExecutionStage_EXECUTE", abi::EXECUTE),
        (
            "XLA_FFI_Error_Code_INVALID_ARGUMENT",
            code::INVALID_ARGUMENT,
        ),
        (
            "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED",
            code::RESOURCE_EXHAUSTED,
        ),
        ("XLA_FFI_Error_Code_UNIMPLEMENTED", code::UNIMPLEMENTED),
        ("XLA_FFI_Error_Code_INTERNAL", code::INTERNAL),
        ("XLA_FFI_DataType_S32", element::S32),
        ("XLA_FFI_DataType_U8", element::U8),
        ("XLA_FFI_DataType_F16", element::F16),
        ("XLA_FFI_DataType_F32", element::F32),
        ("XLA_FFI_DataType_F64", element::F64),
        ("XLA_FFI_DataType_BF16", element::BF16),
    ];
    let mut all: Vec<_> = numbers
        .map(|(name, value)| (name, i64::from(value)))
        .to_vec();
    let replayable = "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE";
    all.push((replayable, i64::from(abi::REPLAYABLE)));
    all
}

/// The fields of structs, and the constants, for the test.
#[pyfunction]
pub(crate) fn jax_layout() -> (Vec<Field>, Vec<(&'static str, i64)>) {
    (fields(), constants())
}
