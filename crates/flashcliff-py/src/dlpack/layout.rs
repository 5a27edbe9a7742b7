//! The structures of DLPack 1.x, with the layout of C.

use std::ffi::{CStr, c_void};

use flashcliff::Dtype;

pub(super) const LEGACY: &CStr = c"dltensor";
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";
pub(super) const USED_LEGACY: &CStr = c"used_dltensor";
pub(super) const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// The version of DLPack that is written.
pub(super) const VERSION: Version = Version { major: 1, minor: 0 };

pub(super) const CPU: i32 = 1;
pub(super) const CUDA: i32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) kind: i32,
    pub(super) ordinal: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DataType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device: Device,
    pub(super) rank: i32,
    pub(super) dtype: DataType,
    pub(super) shape: *mut i64,
    /// The strides in elements; null if the tensor is contiguous.
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) tensor: Tensor,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct ManagedVersioned {
    pub(super) version: Version,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    pub(super) flags: u64,
    pub(super) tensor: Tensor,
}

impl DataType {
    pub(super) const BYTE: Self = Self {
        code: 1,
        bits: 8,
        lanes: 1,
    };

    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        let (code, bits) = match dtype {
            Dtype::F32 => (2, 32),
            Dtype::F64 => (2, 64),
            Dtype::F16 => (2, 16),
            Dtype::Bf16 => (4, 16),
            _ => return None,
        };
        Some(Self {
            code,
            bits,
            lanes: 1,
        })
    }

    /// The name that Python has for the type.
    pub(super) fn name(self) -> String {
        match (self.code, self.bits, self.lanes) {
            (2, 32, 1) => "f32".to_owned(),
            (2, 64, 1) => "f64".to_owned(),
            (2, 16, 1) => "f16".to_owned(),
            (4, 16, 1) => "bf16".to_owned(),
            (code, bits, lanes) => {
                let kinds = [
                    "int", "uint", "float", "opaque", "bfloat", "complex", "bool",
                ];
                let kind = kinds.get(usize::from(code)).unwrap_or(&"type");
                match lanes {
                    1 => format!("{kind}{bits}"),
                    _ => format!("{kind}{bits}x{lanes}"),
                }
            }
        }
    }
}
