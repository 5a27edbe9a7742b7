//! Attention on NVIDIA GPUs, over memory that Python owns.

use flashcliff::cuda::attention::{self, HeadTensor, SequenceRows};
use pyo3::prelude::*;

use crate::convert::dtype_of;
use crate::devices::{Devices, PyStream};
use crate::error::caught;

/// The address, and the strides of sequences, rows and heads.
type PyHeads = (usize, usize, usize, usize);

/// The rows of all sequences, the most of one, and the address of the boundaries, or 0.
type PyRows = (usize, usize, usize);

/// The heads of queries, the heads of keys and values, the features of a query and of a value, the factor of dot products, the type, and
/// whether factors may be rounded to TF32.
type PyKind = (usize, usize, usize, usize, f32, String, bool);

/// Attention within sequences, on GPUs.
///
/// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::attention` says, and nobody else uses what is
/// written until the stream is done.
#[pyclass(frozen, module = "flashcliff._core")]
#[derive(Default)]
pub(crate) struct Attention {
    devices: Devices,
}

#[pymethods]
impl Attention {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The most features of a head.
    #[classattr]
    const WIDTH: usize = attention::Attention::WIDTH;

    /// The number of elements that divides widths, strides and places.
    #[classattr]
    const ALIGNED: usize = attention::Attention::ALIGNED;

    /// `tensors` are queries, keys, values and the result; then come the address of logarithms of sums, and the sequences.
    fn forward(
        &self,
        kind: PyKind,
        tensors: [PyHeads; 4],
        log_sums: usize,
        rows: (usize, PyRows, PyRows),
        stream: PyStream,
    ) -> PyResult<()> {
        let call = call(&kind, tensors, log_sums, rows)?;
        caught(|| {
            self.devices.with(stream, |target| {
                // SAFETY: the caller's, who is the Python package itself.
                unsafe { call.forward(target) }
            })
        })
    }

    /// Like `forward`, and the gradient of the result, the gradients of queries, keys and values, and the address of
    /// room for as many numbers as there are logarithms.
    fn backward(
        &self,
        kind: PyKind,
        tensors: [PyHeads; 4],
        log_sums: usize,
        rows: (usize, PyRows, PyRows),
        gradients: (PyHeads, [PyHeads; 3], usize),
        stream: PyStream,
    ) -> PyResult<()> {
        let call = call(&kind, tensors, log_sums, rows)?;
        let (of_out, to, means) = (heads(gradients.0), gradients.1.map(heads), gradients.2);
        caught(|| {
            self.devices.with(stream, |target| {
                // SAFETY: the same holds as above.
                unsafe { call.backward(target, of_out, to, means as u64) }
            })
        })
    }
}

fn call(
    (heads_of_queries, key_heads, width, value_width, scale, dtype, tf32): &PyKind,
    tensors: [PyHeads; 4],
    log_sums: usize,
    (sequences, queries, keys): (usize, PyRows, PyRows),
) -> PyResult<attention::Attention> {
    let [query, key, value, out] = tensors.map(heads);
    Ok(attention::Attention {
        query,
        key,
        value,
        out,
        log_sums: log_sums as u64,
        queries: rows(queries),
        keys: rows(keys),
        sequences,
        heads: *heads_of_queries,
        key_heads: *key_heads,
        width: *width,
        value_width: *value_width,
        scale: *scale,
        dtype: dtype_of(dtype)?,
        tf32: *tf32,
    })
}

fn heads((features, sequence_stride, row_stride, head_stride): PyHeads) -> HeadTensor {
    HeadTensor {
        features: features as u64,
        sequence_stride,
        row_stride,
        head_stride,
    }
}

fn rows((count, longest, bounds): PyRows) -> SequenceRows {
    SequenceRows {
        count,
        longest,
        bounds: bounds as u64,
    }
}
