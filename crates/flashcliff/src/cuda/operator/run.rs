//! Runs of operators with any number of outputs.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::Operator;
use super::launch::{add_inputs, add_outputs};
use crate::Error;
use crate::cuda::RawStream;
use crate::cuda::array::{self, Array};
use crate::cuda::call::{Call, Kept, NO_GRADIENTS};
use crate::cuda::check::Label;
use crate::cuda::dtype::Dtypes;
use crate::cuda::queue::Queue;
use crate::cuda::spans::{Spans, WORKSPACE_ALIGNMENT};
use crate::cuda::tensor::{Scratch, Tensor, TensorMut};
use crate::operator::{Dims, Pass};

/// The workspace of a run.
struct Space {
    /// The offset in bytes of what the forward pass saves, if it has no other place.
    saved: Option<usize>,
    bytes: usize,
}

impl Operator {
    /// The bytes of workspace that [`Self::run`] needs if all outputs are wanted.
    ///
    /// # Errors
    /// The errors of [`Self::workspace_bytes`].
    pub fn run_workspace_bytes(&self, dims: &Dims, dtypes: Dtypes) -> Result<usize, Error> {
        let pass = self.workspace_bytes(dims, Pass::Forward, dtypes)?;
        Ok(self.with_kept(pass, dims, dtypes).bytes)
    }

    /// The workspace of a run: that of a forward pass, then what the pass saves if it [keeps](crate::Operator::kept) a tensor, which has no
    /// other place.
    fn with_kept(&self, pass: usize, dims: &Dims, dtypes: Dtypes) -> Space {
        if self.operator.kept().is_none() {
            return Space {
                saved: None,
                bytes: pass,
            };
        }
        let saved = pass.next_multiple_of(WORKSPACE_ALIGNMENT);
        let elements = self.saved_len(dims, dtypes);
        Space {
            saved: Some(saved),
            bytes: saved + elements * dtypes.arithmetic().bytes(),
        }
    }

    /// Launches the computation of the outputs that are wanted, like [`crate::Operator::run`]. `workspace` is not needed if
    /// [`Self::run_workspace_bytes`] is 0; its former contents do not matter.
    ///
    /// # Errors
    /// The errors of [`Self::forward`], except the errors of saved values.
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
        stream: RawStream,
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
    pub(crate) unsafe fn run_on(
        &self,
        queue: &Queue<'_>,
        inputs: &[Tensor<'_>],
        outputs: &mut [Option<TensorMut<'_>>],
        mut workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        let checks = self.checks();
        let (dims, dtypes) = checks.run(inputs, outputs)?;
        self.device.make_current()?;
        let kept = Kept::default();
        let implementation = &*self.implementation;
        let pass =
            implementation.workspace_bytes(&dims, Pass::Forward, dtypes, &NO_GRADIENTS, &kept)?;
        let needed = self.with_kept(pass, &dims, dtypes);
        checks.workspace(needed.bytes, workspace.as_ref())?;

        let mut spans = Spans::new();
        let inputs = add_inputs(&mut spans, queue, self.operator.inputs(), inputs);
        let specs = self.operator.outputs();
        let results = add_outputs(&mut spans, queue, Label::Tensor, specs, outputs);
        let space = workspace.as_mut().map_or(0, |workspace| {
            spans.workspace(workspace.acquire(queue), needed.bytes)
        });
        spans.check(self.operator.name())?;
        let call = Call {
            dims,
            dtypes,
            inputs,
            output: results[0].unwrap_or(0),
            result: results[0].unwrap_or(0),
            saved: needed.saved.map_or(0, |offset| space + offset as u64),
            grads: NO_GRADIENTS,
            adds: false,
            workspace: space,
            workspace_bytes: pass,
            kept,
            stream: queue.raw(),
        };
        // SAFETY: everything was checked, and the context made current; the caller promises the stream.
        unsafe { implementation.run(&call, &results) }
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
