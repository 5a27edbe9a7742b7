//! Operators on the rows of relations, over memory that Python owns.

use flashcliff::messages::{self, End, MessageForm, MessageTensor, Strided};
use flashcliff::segments::Lists;
use flashcliff::{Element, Error};
use pyo3::prelude::*;

use crate::error::detached;
use crate::host::{slice, slice_mut};
use crate::operator::Operator;
use crate::segments::PyRelation;

/// A tensor: the number of its relation, or `None` for rows, and whether it has one channel.
type PyTensor = (Option<usize>, bool);

/// The tensors of inputs, the relation of results, and for each result whether it is summed over
/// channels.
type PyForm = (Vec<PyTensor>, Option<usize>, Vec<bool>);

/// The address of a tensor, and the elements from a component and from an item to the next.
type PyStrided = (usize, usize, usize);

/// Inputs and results, each with its number of elements from the first to the last.
type PyTensors = (Vec<(PyStrided, usize)>, Vec<(usize, usize)>);

fn form_of((inputs, to, sums): PyForm) -> MessageForm {
    let end = |relation: Option<usize>| relation.map_or(End::Rows, End::Targets);
    let tensor = |(relation, one)| MessageTensor {
        end: end(relation),
        one,
    };
    MessageForm {
        inputs: inputs.into_iter().map(tensor).collect(),
        to: end(to),
        sums,
    }
}

/// Computes an operator on rows, on the CPU, in `f64` or else `f32`. Results are contiguous. Relations
/// have the addresses of their lists, and the number of their targets; sizes are rows and channels.
///
/// Not for users: memory is not checked. All addresses hold the elements that the sizes state, and
/// what is written overlaps nothing.
#[pyfunction]
pub(crate) fn run_messages(
    py: Python<'_>,
    operator: &Operator,
    form: PyForm,
    tensors: PyTensors,
    relations: Vec<(PyRelation, usize)>,
    sizes: (usize, usize),
    is_f64: bool,
) -> PyResult<()> {
    let (operator, form) = (&operator.inner, form_of(form));
    detached(py, || {
        // SAFETY: the caller's, who is the Python package itself: it checked that these are tensors
        // of the sizes and the type, whose memory is there and, where it is written, that of no
        // other.
        unsafe {
            match is_f64 {
                true => run::<f64>(operator, &form, &tensors, &relations, sizes),
                false => run::<f32>(operator, &form, &tensors, &relations, sizes),
            }
        }
    })
}

/// # Safety
/// The addresses hold what the sizes say, of type `T`, and what is written overlaps nothing.
unsafe fn run<T: Element>(
    operator: &flashcliff::Operator,
    form: &MessageForm,
    (inputs, outputs): &PyTensors,
    relations: &[(PyRelation, usize)],
    (rows, channels): (usize, usize),
) -> Result<(), Error> {
    // SAFETY: the caller promises it.
    let (inputs, outputs, relations): (Vec<_>, _, Vec<_>) = unsafe {
        let inputs = inputs
            .iter()
            .map(|&((address, component, item), len)| Strided {
                data: slice::<T>(address, len),
                component,
                item,
            });
        let outputs = outputs
            .iter()
            .map(|&(address, len)| slice_mut(address, len));
        let lists = relations
            .iter()
            .map(|&((target, starts, order), targets)| Lists {
                targets: slice(target, rows),
                starts: slice(starts, targets + 1),
                order: slice(order, rows),
            });
        (inputs.collect(), outputs.collect(), lists.collect())
    };
    let call = messages::Messages {
        inputs: &inputs,
        relations: &relations,
        channels,
    };
    messages::run(operator, form, &call, outputs)
}

/// The kernels on GPUs.
#[cfg(feature = "cuda")]
pub(crate) mod on_cuda {
    use flashcliff::cuda::StridedTensor;
    use flashcliff::cuda::messages::{MessageCall, Messages as Core};
    use flashcliff::cuda::segments::Addresses;
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    use super::{PyStrided, PyTensor, form_of};
    use crate::convert::dtype_of;
    use crate::devices::{Devices, PyStream};
    use crate::error::caught;
    use crate::operator::Operator;
    use crate::segments::PyRelation;

    /// An operator on the rows of relations, on GPUs.
    ///
    /// Not for users: memory is not checked. All addresses hold what `flashcliff::cuda::messages` says, and nobody
    /// else uses what is written until the stream is done.
    #[pyclass(frozen, module = "flashcliff._core")]
    pub(crate) struct Messages {
        inner: Core,
        devices: Devices,
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
            let inner =
                Core::new(&operator.inner, &form_of((inputs, to, sums))).ok_or_else(|| {
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

        /// Computes results, which are contiguous, at addresses. Relations have the addresses of their lists, and the
        /// number of their targets.
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
}
