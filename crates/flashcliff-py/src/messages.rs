//! Operators on the rows of relations, on GPUs.

use flashcliff::cuda::StridedTensor;
use flashcliff::cuda::messages::{End, MessageCall, MessageForm, MessageTensor, Messages as Core};
use flashcliff::cuda::segments::Addresses;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert::dtype_of;
use crate::devices::{Devices, PyStream};
use crate::error::caught;
use crate::operator::Operator;
use crate::segments::PyRelation;

/// A tensor: the number of its relation, or `None` for rows, and whether it has one channel.
type PyTensor = (Option<usize>, bool);

/// The address of a tensor, and the elements from a component and from an item to the next.
type PyStrided = (usize, usize, usize);

/// An operator on the rows of relations, on GPUs.
///
/// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::messages` says, and nobody else uses what is written until the stream is
/// done.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Messages {
    inner: Core,
    devices: Devices,
}

fn end(relation: Option<usize>) -> End {
    relation.map_or(End::Rows, End::Targets)
}

#[pymethods]
impl Messages {
    /// The operator with the tensors of its inputs, the relation of its results, and for each whether it is summed over channels.
    #[new]
    fn new(
        operator: &Operator,
        inputs: Vec<PyTensor>,
        to: Option<usize>,
        sums: Vec<bool>,
    ) -> PyResult<Self> {
        let tensor = |(relation, one)| MessageTensor {
            end: end(relation),
            one,
        };
        let form = MessageForm {
            inputs: inputs.into_iter().map(tensor).collect(),
            to: end(to),
            sums,
        };
        let inner = Core::new(&operator.inner, &form).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{}: expected one program without sums over rows or channels",
                operator.inner.name()
            ))
        })?;
        Ok(Self {
            inner,
            devices: Devices::default(),
        })
    }

    /// Computes results, which are contiguous, at addresses. Relations have the addresses of their lists, and the number of their targets.
    fn run(
        &self,
        tensors: (Vec<PyStrided>, Vec<usize>),
        relations: Vec<(PyRelation, usize)>,
        sizes: (usize, usize),
        dtype: &str,
        stream: PyStream,
    ) -> PyResult<()> {
        let strided = |(address, blade_stride, row_stride)| StridedTensor {
            address: address as u64,
            blade_stride,
            row_stride,
        };
        let inputs: Vec<StridedTensor> = tensors.0.into_iter().map(strided).collect();
        let outputs: Vec<u64> = tensors.1.into_iter().map(|own| own as u64).collect();
        let (rows, channels) = sizes;
        let relations = relations
            .into_iter()
            .map(|((target, starts, order), targets)| Addresses {
                target: target as u64,
                starts: starts as u64,
                order: order as u64,
                rows,
                targets,
            });
        let relations: Vec<Addresses> = relations.collect();
        let call = MessageCall {
            inputs: &inputs,
            outputs: &outputs,
            relations: &relations,
            channels,
            dtype: dtype_of(dtype)?,
        };
        caught(|| {
            self.devices.with(stream, |target| {
                // SAFETY: the caller's, who is the Python package itself.
                unsafe { self.inner.run(target, &call) }
            })
        })
    }
}
