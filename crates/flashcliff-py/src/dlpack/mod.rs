//! Exchanges arrays with other libraries by DLPack, in both directions.

mod export;
mod layout;

use std::slice;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use layout::{LEGACY, Managed, ManagedVersioned, Tensor, VERSION, VERSIONED};

pub(crate) use export::Array;

/// The address, shape, dtype, (kind of device, number of device), and whether the array is contiguous.
type Held<'py> = (usize, Bound<'py, PyTuple>, String, (i32, i32), bool);

/// The array of a capsule. The memory belongs to the capsule, which is not changed: nobody else may take it over while
/// the address is in use.
#[pyfunction]
pub(crate) fn read_dlpack<'py>(
    py: Python<'py>,
    capsule: &Bound<'py, PyCapsule>,
) -> PyResult<Held<'py>> {
    let name = capsule.name()?.map(|name| {
        // SAFETY: the capsule lives, and nobody renames it while the interpreter is held.
        unsafe { name.as_cstr() }
    });
    let tensor: &Tensor = match name {
        Some(name) if name == LEGACY => {
            let managed = capsule.pointer_checked(Some(LEGACY))?.cast::<Managed>();
            // SAFETY: a capsule of this name points to this structure, which lives as long as the capsule.
            unsafe { &managed.as_ref().tensor }
        }
        Some(name) if name == VERSIONED => {
            let managed = capsule.pointer_checked(Some(VERSIONED))?;
            let managed = managed.cast::<ManagedVersioned>();
            // SAFETY: the same holds as above; the version comes first in every version of the structure.
            let version = unsafe { (*managed.as_ptr()).version };
            if version.major != VERSION.major {
                return Err(PyBufferError::new_err(format!(
                    "expected DLPack {}.x, got {}.{}",
                    VERSION.major, version.major, version.minor
                )));
            }
            // SAFETY: the same holds as above.
            unsafe { &managed.as_ref().tensor }
        }
        other => {
            return Err(PyTypeError::new_err(format!(
                "expected a DLPack capsule that is not used up, got {other:?}"
            )));
        }
    };
    let rank = usize::try_from(tensor.rank).unwrap_or(0);
    let axes = |at: *const i64| match rank {
        0 => &[][..],
        // SAFETY: a tensor has this number of axes, and of strides if it has any.
        _ => unsafe { slice::from_raw_parts(at, rank) },
    };
    let shape = axes(tensor.shape);
    let contiguous = tensor.strides.is_null() || is_contiguous(shape, axes(tensor.strides));
    let address = tensor.data.expose_provenance();
    let address = address.wrapping_add(tensor.byte_offset as usize);
    let device = (tensor.device.kind, tensor.device.ordinal);
    Ok((
        address,
        PyTuple::new(py, shape)?,
        tensor.dtype.name(),
        device,
        contiguous,
    ))
}

fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 && stride != expected {
            return false;
        }
        expected *= size;
    }
    true
}
