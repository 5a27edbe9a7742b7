//! The addresses of tensors of PyTorch, for checks that each call makes of hundreds.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyTuple};
use pyo3::{Bound, intern};

use crate::exchange::{Exchange, Facts};

/// The addresses of tensors, 0 for `None`, which has no shape. No list if one of them is not of a class in `kinds`, of the type and on the device of the first one, and
/// contiguous with all of its memory; if one has no elements, or another shape than its own in `shapes`.
#[pyfunction]
#[pyo3(signature = (tensors, kinds, shapes=None))]
pub(crate) fn addresses(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    kinds: &Bound<'_, PyTuple>,
    shapes: Option<Vec<Bound<'_, PyAny>>>,
) -> PyResult<Option<Vec<usize>>> {
    match all(tensors, kinds, shapes.as_deref()) {
        // A tensor without memory of its own has no address.
        Err(error) if error.is_instance_of::<PyRuntimeError>(py) => Ok(None),
        found => found,
    }
}

fn all(
    tensors: &Bound<'_, PyAny>,
    kinds: &Bound<'_, PyTuple>,
    shapes: Option<&[Bound<'_, PyAny>]>,
) -> PyResult<Option<Vec<usize>>> {
    let exchange = Exchange::of(&kinds.get_item(0)?);
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
        let shape = shapes.and_then(|shapes| shapes.get(at));
        let seen = match exchange.and_then(|exchange| exchange.facts(&tensor)) {
            Some(facts) => by_facts(&tensor, &facts, shape)?,
            None => by_questions(&tensor, shape)?,
        };
        let Some((own, place)) = seen else {
            return Ok(None);
        };
        if own != *first.get_or_insert_with(|| own.clone()) {
            return Ok(None);
        }
        found.push(place);
    }
    Ok(Some(found))
}

/// The type and the device of a tensor.
#[derive(Clone, Debug)]
enum Own<'py> {
    Known((u8, u8, u16), i64),
    Asked(Bound<'py, PyAny>, i64),
}

impl PartialEq for Own<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(dtype, on), Self::Known(others, there)) => (dtype, on) == (others, there),
            (Self::Asked(dtype, on), Self::Asked(others, there)) => dtype.is(others) && on == there,
            _ => false,
        }
    }
}

/// What a tensor is, and its address; `None` if it has another shape, or no address.
fn by_facts<'py>(
    tensor: &Bound<'py, PyAny>,
    facts: &Facts<'_>,
    shape: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<(Own<'py>, usize)>> {
    let py = tensor.py();
    let has_shape = match shape {
        Some(shape) => facts.shape == shape.extract::<Vec<i64>>()?,
        None => true,
    };
    if !has_shape || !facts.is_contiguous || facts.address == 0 || facts.bytes() == 0 {
        return Ok(None);
    }
    if tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
        return Ok(None);
    }
    let start = tensor.call_method0(intern!(py, "storage_offset"))?;
    let bytes = facts.bytes() + start.extract::<usize>()? * facts.item_bytes();
    let own = Own::Known(facts.dtype, facts.device);
    Ok((stored(tensor)? >= bytes).then_some((own, facts.address)))
}

/// The same by questions to the tensor alone.
fn by_questions<'py>(
    tensor: &Bound<'py, PyAny>,
    shape: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<(Own<'py>, usize)>> {
    if !shape.map_or(Ok(true), |own| shape_of(tensor)?.eq(own))? {
        return Ok(None);
    }
    let own = Own::Asked(dtype(tensor)?, device(tensor)?);
    Ok(match place(tensor)? {
        0 => None,
        place => Some((own, place)),
    })
}

/// The bytes of the storage of a tensor.
fn stored(tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = tensor.py();
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    storage.call_method0(intern!(py, "nbytes"))?.extract()
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
    match stored(tensor)? >= bytes {
        true => tensor.call_method0(intern!(py, "data_ptr"))?.extract(),
        false => Ok(0),
    }
}
