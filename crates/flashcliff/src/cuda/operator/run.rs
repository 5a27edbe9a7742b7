//! Runs of operators with any number of outputs.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::launch::{add_inputs, add_outputs};
use super::{Operator, Work};
use crate::Error;
use crate::cuda::array::{self, Array};
use crate::cuda::call::{Call, Kept, NO_GRADIENTS};
use crate::cuda::check::Label;
use crate::cuda::dtype::Dtypes;
use crate::cuda::queue::Queue;
use crate::cuda::spans::Spans;
use crate::cuda::tensor::{Scratch, Tensor, TensorMut};
use crate::cuda::zero;
use crate::operator::{Dims, Pass};

impl Operator {
    /// The bytes of workspace that [`Self::run`] needs if all outputs are wanted.
    ///
    /// # Errors
    /// The errors of [`Self::workspace_bytes`].
    pub fn run_workspace_bytes(&self, dims: &Dims, dtypes: Dtypes) -> Result<usize, Error> {
        self.workspace_bytes(dims, Pass::Forward, dtypes)
    }

    /// Launches the computation of the outputs that are wanted, like [`crate::Operator::run`]. `workspace` is not needed if
    /// [`Self::run_workspace_bytes`] is 0; its former contents do not matter.
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::UnsupportedOnCuda`] for operators with matrix products over channels, which have one output:
    /// [`Self::forward`] computes it.
    pub fn run(
        &self,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        outputs: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.checks().stream(stream, &self.device)?;
        let queue = Queue::of(stream);
        // SAFETY: the stream is alive, and of the context of the device.
        unsafe { self.run_on(&queue, inputs, outputs, workspace) }
    }

    /// Does the same as [`Self::run`], on a stream that is not cudarc's.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    ///
    /// # Safety
    /// The contract of [`Self::forward_raw`] holds.
    pub unsafe fn run_raw(
        &self,
        stream: CUstream,
        inputs: &[Tensor<'_>],
        outputs: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe {
            let queue = Queue::from_raw(stream, self.device.context());
            self.run_on(&queue, inputs, outputs, workspace)
        }
    }

    /// # Safety
    /// The stream of the queue is valid and belongs to the context of the device.
    pub(in crate::cuda) unsafe fn run_on(
        &self,
        queue: &Queue<'_>,
        inputs: &[Tensor<'_>],
        outputs: &mut [Option<TensorMut<'_>>],
        mut workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        let checks = self.checks();
        let (dims, dtypes) = checks.inputs(inputs)?;
        checks.outputs(&dims, dtypes, outputs)?;
        self.device.make_current()?;
        let kept = Kept::default();
        let needed = self.needed_workspace(&dims, Pass::Forward, dtypes, &NO_GRADIENTS, &kept)?;
        checks.workspace(needed, workspace.as_ref())?;

        let mut spans = Spans::new();
        let inputs = add_inputs(&mut spans, queue, self.operator.inputs(), inputs);
        let specs = self.operator.outputs();
        let results = add_outputs(&mut spans, queue, Label::Tensor, specs, outputs);
        let space = workspace.as_mut().map_or(0, |workspace| {
            spans.workspace(workspace.acquire(queue), needed)
        });
        spans.check(self.operator.name())?;
        let call = Call {
            dims,
            dtypes,
            inputs,
            output: 0,
            result: 0,
            saved: 0,
            grads: results,
            workspace: space,
            workspace_bytes: needed,
            kept,
            stream: queue.raw(),
        };
        // SAFETY: everything was checked, and the context made current; the caller promises the stream.
        unsafe {
            match &self.work {
                Work::Lanes(lanes) => lanes.run(&call, &results),
                Work::Zero => zero::backward(&call, self.operator.outputs()),
                Work::Composed(composed) => composed.run(&call, &call.inputs, &results),
                Work::Linear(_) | Work::FullyConnected(_) | Work::LinearSgp(_) => {
                    Err(Error::UnsupportedOnCuda {
                        operator: self.operator.name().to_owned(),
                        reason: "it has matrix products over channels and one output, which `forward` computes"
                            .to_owned(),
                    })
                }
            }
        }
    }

    /// Runs [`Self::run`] into new memory of the stream. Returns all outputs, in order.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub fn results(
        &self,
        stream: &Arc<CudaStream>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Array>, Error> {
        let (dims, dtypes) = self.checks().inputs(inputs)?;
        let mut results = Vec::new();
        for spec in self.operator.outputs() {
            results.push(Array::zeros(stream, dtypes.of(spec), &spec.shape(&dims))?);
        }
        let mut views = Vec::with_capacity(results.len());
        for result in &mut results {
            views.push(Some(result.view_mut()?));
        }
        let bytes = self.run_workspace_bytes(&dims, dtypes)?;
        let mut workspace = array::scratch(stream, bytes)?;
        let workspace = Scratch::new(&mut workspace);
        self.run(stream, inputs, &mut views, Some(workspace))?;
        drop(views);
        Ok(results)
    }
}
