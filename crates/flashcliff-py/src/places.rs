//! The addresses of tensors of PyTorch, for checks that each call makes of hundreds.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyTuple};
use pyo3::{Bound, intern};

/// The addresses of tensors, 0 for `None`, which has no shape. No list if one of them is not of a class in `kinds`,
/// of the type and on the device of the first one, and contiguous with all of its memory; if one has no elements, or
/// another shape than its own in `shapes`.
#[pyfunction]
#[pyo3(signature = (tensors, kinds, shapes=None))]
pub(crate) fn addresses(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    kinds: &Bound<'_, PyTuple>,
    shapes: Option<Vec<Bound<'_, PyAny>>>,
) -> PyResult<Option<Vec<usize>>> {
    match all(tensors, kinds, shapes.as_deref()) {
        // A tensor without its own memory has no address.
        Err(error) if error.is_instance_of::<PyRuntimeError>(py) => Ok(None),
        found => found,
    }
}

fn all(
    tensors: &Bound<'_, PyAny>,
    kinds: &Bound<'_, PyTuple>,
    shapes: Option<&[Bound<'_, PyAny>]>,
) -> PyResult<Option<Vec<usize>>> {
    let mut found = Vec::with_capacity(tensors.len()?);
    let mut first = None;
    for (at, tensor) in tensors.try_iter()?.enumerate() {
        let tensor = tensor?;
        if tensor.is_none() {
            if shapes.is_some() {
                return Ok(None);
            }
            found.push(0);
            continue;
        }
        let kind = tensor.get_type();
        if !kinds.iter_borrowed().any(|own| own.is(&kind)) {
            return Ok(None);
        }
        let own = (dtype(&tensor)?, device(&tensor)?);
        let (of_type, on_device) = first.get_or_insert_with(|| own.clone());
        if !own.0.is(&*of_type) || own.1 != *on_device {
            return Ok(None);
        }
        let shape = shapes.and_then(|shapes| shapes.get(at));
        if !shape.map_or(Ok(true), |own| shape_of(&tensor)?.eq(own))? {
            return Ok(None);
        }
        match place(&tensor)? {
            0 => return Ok(None),
            place => found.push(place),
        }
    }
    Ok(Some(found))
}

fn shape_of<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    tensor.getattr(intern!(tensor.py(), "shape"))
}

fn dtype<'py>(tensor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    tensor.getattr(intern!(tensor.py(), "dtype"))
}

/// The number of the GPU of a tensor, -1 on the CPU.
fn device(tensor: &Bound<'_, PyAny>) -> PyResult<i64> {
    let py = tensor.py();
    match tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
        true => Ok(-1),
        false => tensor.call_method0(intern!(py, "get_device"))?.extract(),
    }
}

/// The address of a contiguous tensor whose storage has all of its elements; 0 for any other, and for one without elements.
fn place(tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = tensor.py();
    let is = |name| tensor.call_method0(name).and_then(|own| own.is_truthy());
    if !is(intern!(py, "is_contiguous"))? || is(intern!(py, "is_neg"))? {
        return Ok(0);
    }
    let size = |of: &Bound<'_, PyAny>, name| of.getattr(name)?.extract::<usize>();
    let start = tensor.call_method0(intern!(py, "storage_offset"))?;
    let mut bytes = size(tensor, intern!(py, "nbytes"))?;
    match start.extract::<usize>()? {
        0 => {}
        start => bytes += start * size(tensor, intern!(py, "itemsize"))?,
    }
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    let there: usize = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
    match there >= bytes {
        true => tensor.call_method0(intern!(py, "data_ptr"))?.extract(),
        false => Ok(0),
    }
}
