//! Tensors in the form in which Python passes them: addresses, shapes, element types.

use flashcliff::Dtype;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// A contiguous tensor that Python owns: `(address, shape, dtype)`.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) address: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
}

impl<'py> FromPyObject<'_, 'py> for View {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let tuple = object.cast::<PyTuple>()?;
        let [address, shape, dtype] = items(&tuple)?;
        let axes = shape.cast::<PyTuple>()?;
        let axes = axes.iter_borrowed().map(|axis| axis.extract::<usize>());
        Ok(Self {
            address: address.extract()?,
            shape: axes.collect::<PyResult<_>>()?,
            dtype: dtype_of(dtype.cast::<PyString>()?.to_cow()?.as_ref())?,
        })
    }
}

/// Memory without a shape: `(address, bytes)`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Space {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl<'py> FromPyObject<'_, 'py> for Space {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (address, bytes) = object.extract()?;
        Ok(Self { address, bytes })
    }
}

/// A GPU, as Python passes it.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read on GPUs only"))]
pub(crate) struct Gpu {
    pub(crate) ordinal: usize,
    /// The address of the stream, as an integer.
    pub(crate) stream: usize,
    /// Whether matrix products may round `f32` to TF32.
    pub(crate) tf32: bool,
}

impl From<(usize, usize, bool)> for Gpu {
    fn from((ordinal, stream, tf32): (usize, usize, bool)) -> Self {
        Self {
            ordinal,
            stream,
            tf32,
        }
    }
}

/// The sizes of the buffers that a pass needs besides its inputs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) output: Vec<usize>,
    /// The number of saved elements, in the arithmetic type.
    pub(crate) saved: usize,
    /// The bytes of workspace.
    pub(crate) workspace: usize,
    /// Whether the pass takes so much memory that each call asks whether there is room.
    pub(crate) is_large: bool,
}

fn items<'a, 'py, const N: usize>(
    tuple: &'a Borrowed<'_, 'py, PyTuple>,
) -> PyResult<[Borrowed<'a, 'py, PyAny>; N]> {
    let items: Vec<_> = tuple.iter_borrowed().collect();
    items.try_into().map_err(|items: Vec<_>| {
        let got = items.len();
        PyValueError::new_err(format!("expected a tuple of {N} items, got {got}"))
    })
}

pub(crate) fn dtype_of(name: &str) -> PyResult<Dtype> {
    match name {
        "f32" => Ok(Dtype::F32),
        "f64" => Ok(Dtype::F64),
        "bf16" => Ok(Dtype::Bf16),
        "f16" => Ok(Dtype::F16),
        _ => Err(PyTypeError::new_err(format!(
            "expected f32, f64, bf16 or f16, got {name}"
        ))),
    }
}
