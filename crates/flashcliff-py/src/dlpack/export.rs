//! Arrays of this library that other libraries can take over.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use flashcliff::Dtype;
use flashcliff_network::scratch::Buffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::layout::{
    CPU, CUDA, DataType, Device, LEGACY, Managed, ManagedVersioned, Tensor, USED_LEGACY,
    USED_VERSIONED, VERSION, VERSIONED,
};
use crate::convert::dtype_of;
use crate::cuda;

/// The alignment in bytes that other libraries expect.
const ALIGNMENT: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; ALIGNMENT]);

enum Memory {
    Host(Vec<Line>),
    /// Memory of the pool of buffers, which goes back there.
    Pooled(Buffer<f32>),
    Device(cuda::Memory),
}

/// A contiguous array of zeros, on the CPU or a GPU.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Array {
    memory: Memory,
    shape: Vec<i64>,
    dtype: DataType,
    device: Device,
}

#[pymethods]
impl Array {
    #[new]
    fn new(
        py: Python<'_>,
        shape: Vec<usize>,
        dtype: &str,
        device: Option<usize>,
    ) -> PyResult<Self> {
        let dtype = dtype_of(dtype)?;
        let elements = shape
            .iter()
            .try_fold(1_usize, |n, &axis| n.checked_mul(axis));
        let bytes = elements.and_then(|n| n.checked_mul(dtype.bytes()));
        let axes = shape.iter().map(|&axis| i64::try_from(axis)).collect();
        let (Some(bytes), Ok(axes)) = (bytes, axes) else {
            return Err(PyValueError::new_err(format!(
                "shape {shape:?} is too large"
            )));
        };
        let (memory, kind) = match device {
            None => (Memory::Host(host(bytes)?), CPU),
            Some(ordinal) => (Memory::Device(cuda::Memory::new(py, bytes, ordinal)?), CUDA),
        };
        Ok(Self {
            memory,
            shape: axes,
            dtype: data_type(dtype)?,
            device: Device {
                kind,
                ordinal: i32::try_from(device.unwrap_or(0)).unwrap_or(i32::MAX),
            },
        })
    }

    /// Bytes on the CPU that come from the pool of buffers, with any contents, and go back when nobody holds them:
    /// fresh memory of the system costs a page fault for every 4 KiB.
    #[staticmethod]
    fn pooled(bytes: usize) -> PyResult<Self> {
        let shape = i64::try_from(bytes);
        let shape = shape.map_err(|_| PyValueError::new_err(format!("{bytes} bytes are too many")));
        Ok(Self {
            memory: Memory::Pooled(Buffer::take(bytes.div_ceil(size_of::<f32>()))),
            shape: vec![shape?],
            dtype: DataType::BYTE,
            device: Device {
                kind: CPU,
                ordinal: 0,
            },
        })
    }

    /// The address of the array.
    #[getter]
    fn address(&self) -> usize {
        self.start().expose_provenance()
    }

    /// Waits until the GPU has finished the work on its default stream.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        match &self.memory {
            Memory::Host(_) | Memory::Pooled(_) => Ok(()),
            Memory::Device(memory) => memory.synchronize(py),
        }
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (self.device.kind, self.device.ordinal)
    }

    /// A capsule that keeps this array alive. Consumers need not wait for its stream: see `synchronize`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = stream;
        let this = slf.get();
        if copy == Some(true) || dl_device.is_some_and(|device| device != this.__dlpack_device__())
        {
            return Err(PyBufferError::new_err(
                "an array of flashcliff is given away as it is, not copied",
            ));
        }
        let owner = Box::new(Owner {
            shape: this.shape.clone(),
            _array: slf.clone().unbind(),
        });
        match max_version {
            Some((major, _)) if major >= VERSION.major => versioned(slf.py(), this, owner),
            _ => legacy(slf.py(), this, owner),
        }
    }
}

impl Array {
    fn start(&self) -> *mut c_void {
        match &self.memory {
            Memory::Host(lines) => lines.as_ptr().cast_mut().cast(),
            Memory::Pooled(own) => own.as_ptr().cast_mut().cast(),
            Memory::Device(memory) => ptr::with_exposed_provenance_mut(memory.address()),
        }
    }

    fn tensor(&self, owner: &mut Owner) -> Tensor {
        Tensor {
            data: self.start(),
            device: self.device,
            rank: i32::try_from(owner.shape.len()).unwrap_or(0),
            dtype: self.dtype,
            shape: owner.shape.as_mut_ptr(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

/// The data that a capsule keeps alive.
struct Owner {
    shape: Vec<i64>,
    _array: Py<Array>,
}

fn host(bytes: usize) -> PyResult<Vec<Line>> {
    let lines = bytes.div_ceil(ALIGNMENT).max(1);
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(lines)
        .map_err(|_| PyMemoryError::new_err(format!("cannot allocate {bytes} bytes")))?;
    memory.resize(lines, Line([0; ALIGNMENT]));
    Ok(memory)
}

fn data_type(dtype: Dtype) -> PyResult<DataType> {
    let message = || PyTypeError::new_err(format!("DLPack has no name for {dtype}"));
    DataType::of(dtype).ok_or_else(message)
}

fn versioned<'py>(
    py: Python<'py>,
    array: &Array,
    mut owner: Box<Owner>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let managed = Box::new(ManagedVersioned {
        version: VERSION,
        tensor: array.tensor(&mut owner),
        context: Box::into_raw(owner).cast(),
        deleter: Some(delete_versioned),
        flags: 0,
    });
    capsule(py, Box::into_raw(managed).cast(), VERSIONED, drop_versioned)
}

fn legacy<'py>(
    py: Python<'py>,
    array: &Array,
    mut owner: Box<Owner>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let managed = Box::new(Managed {
        tensor: array.tensor(&mut owner),
        context: Box::into_raw(owner).cast(),
        deleter: Some(delete_legacy),
    });
    capsule(py, Box::into_raw(managed).cast(), LEGACY, drop_legacy)
}

fn capsule<'py>(
    py: Python<'py>,
    managed: *mut c_void,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    let managed = NonNull::new(managed).ok_or_else(|| PyBufferError::new_err("null"))?;
    // SAFETY: the name is static; the destructor frees what the pointer came from, once.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, managed, name, Some(destructor)) }
}

/// Frees what [`versioned`] has exported; its consumer calls this.
///
/// # Safety
/// The pointer was made by [`versioned`], and is freed once.
unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: the pointer was made by `versioned`; the owner calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        release(managed.context);
    }
}

/// Frees what [`legacy`] has exported; its consumer calls this.
///
/// # Safety
/// The pointer was made by [`legacy`], and is freed once.
unsafe extern "C" fn delete_legacy(managed: *mut Managed) {
    // SAFETY: the pointer was made by `legacy`; the owner calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        release(managed.context);
    }
}

/// # Safety
/// The context was made by `Box::into_raw` of an `Owner`, and is released once.
unsafe fn release(context: *mut c_void) {
    // SAFETY: the caller promises it.
    let owner = unsafe { Box::from_raw(context.cast::<Owner>()) };
    // Consumers may call this without the interpreter, and after its end; then the array stays allocated.
    let _ = Python::try_attach(move |_| drop(owner));
}

/// Frees what a capsule of [`versioned`] holds, if no consumer has taken it.
///
/// # Safety
/// The interpreter is attached, and destroys the capsule.
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter destroys a capsule of `versioned`; a used one belongs to its consumer.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else {
            debug_assert_eq!(ffi::PyCapsule_IsValid(capsule, USED_VERSIONED.as_ptr()), 1);
        }
    }
}

/// Frees what a capsule of [`legacy`] holds, if no consumer has taken it.
///
/// # Safety
/// The interpreter is attached, and destroys the capsule.
unsafe extern "C" fn drop_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: the same holds as for `drop_versioned`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) == 1 {
            delete_legacy(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast());
        } else {
            debug_assert_eq!(ffi::PyCapsule_IsValid(capsule, USED_LEGACY.as_ptr()), 1);
        }
    }
}
