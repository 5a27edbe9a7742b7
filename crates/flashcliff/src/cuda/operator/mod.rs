//! Operators on a device.

mod evaluate;
mod implementation;
mod launch;
mod run;
mod strided;

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::call::{ALL_GRADIENTS, Kept, NO_GRADIENTS};
use super::check::Checks;
use super::device::Device;
use super::dtype::Dtypes;
use super::matmul::MatmulPrecision;
use super::queue::Queue;
use super::tensor::{Scratch, Tensor, TensorMut};
use crate::Error;
use crate::cuda::RawStream;
use crate::operator::{Dims, Pass, each};
pub use evaluate::Evaluation;
pub(crate) use implementation::OnCuda;
pub(crate) use launch::{Given, Member};
pub use strided::{StridedTensor, StridedWorkspace, WideTensors};

/// An operator, bound to a device; made by [`crate::Operator::on_cuda`]. Cheap to clone.
///
/// It has the function, the tensors and the shapes of the [`crate::Operator`]. See [`cuda`](super) for element types,
/// determinism and the rules of a launch.
#[derive(Clone, Debug)]
pub struct Operator {
    operator: Arc<crate::Operator>,
    device: Device,
    pub(crate) implementation: Arc<dyn OnCuda>,
}

impl crate::Operator {
    /// The operator on a GPU.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] if there is no CUDA kernel of the operator, and none can be compiled (feature `jit`).
    /// [`Error::CudaLibrary`] without cuBLASLt
    /// for [`mv_linear`](crate::ops::mv_linear), [`mv_linear_sgp_norm`](crate::ops::mv_linear_sgp_norm) and
    /// [`fcgp_norm`](crate::ops::fcgp_norm).
    pub fn on_cuda(&self, device: &Device) -> Result<Operator, Error> {
        let implementation: Arc<dyn OnCuda> =
            each!(self.kind(), of => Arc::new(of.on_cuda(self, device)?));
        Ok(Operator {
            operator: Arc::new(self.clone()),
            device: device.clone(),
            implementation,
        })
    }
}

impl Operator {
    /// The operator of the CPU, with the name, tensors, shapes and cost of this one.
    pub fn operator(&self) -> &crate::Operator {
        &self.operator
    }

    /// The device of the operator.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Lets matrix products of `f32` tensors round their operands. Has no effect on operators
    /// without matrix products.
    #[must_use]
    pub fn with_precision(mut self, precision: MatmulPrecision) -> Self {
        if let Some(own) = self.implementation.with_precision(precision) {
            self.implementation = own;
        }
        self
    }

    /// Limits the memory for path products in the workspace of [`fcgp_norm`](crate::ops::fcgp_norm), which forms them
    /// for blocks of rows. The limit is 256 MiB unless it was tuned or is set here. A block has at least one row in any
    /// case. A smaller limit is slower. The gradients of weights are sums over the batch that go from block to block,
    /// so their rounding depends on the limit. Has no effect on other operators.
    #[must_use]
    pub fn with_block_bytes(mut self, bytes: usize) -> Self {
        if let Some(own) = self.implementation.with_block_bytes(bytes) {
            self.implementation = own;
        }
        self
    }

    /// The sizes that the shapes of the inputs stand for.
    ///
    /// # Errors
    /// The errors of [`crate::Operator::bind`].
    pub fn bind(&self, shapes: &[&[usize]]) -> Result<Dims, Error> {
        self.operator.bind(shapes)
    }

    /// The number of elements that the forward pass saves for the backward pass, of type [`Dtypes::arithmetic`]. A
    /// tensor that is [kept](crate::Operator::kept) comes first and has the type of the lanes; two 16-bit elements take
    /// the place of one 32-bit element.
    pub fn saved_len(&self, dims: &Dims, dtypes: Dtypes) -> usize {
        self.checks().saved_len(dims, dtypes)
    }

    /// The bytes of workspace that a pass needs if all gradients are wanted.
    ///
    /// # Errors
    /// [`Error::DtypeMismatch`] or [`Error::UnsupportedOnCuda`] for element types without kernels,
    /// [`Error::Cuda`].
    pub fn workspace_bytes(&self, dims: &Dims, pass: Pass, dtypes: Dtypes) -> Result<usize, Error> {
        self.checks().dtypes(dtypes)?;
        self.device.make_current()?;
        let grads = match pass {
            Pass::Forward => &NO_GRADIENTS,
            Pass::Backward => &ALL_GRADIENTS,
        };
        let kept = Kept::default();
        self.implementation
            .workspace_bytes(dims, pass, dtypes, grads, &kept)
    }

    /// Does the work that only the first call would do: loads the kernels of both passes, and chooses algorithms for
    /// matrix products of these sizes. This is needed before a call is captured into a graph. Operators with matrix
    /// products also need one call before the capture, in which cuBLASLt and small kernels are loaded.
    ///
    /// # Errors
    /// The errors of [`Self::workspace_bytes`].
    pub fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        self.checks().dtypes(dtypes)?;
        self.device.make_current()?;
        self.implementation.prepare(dims, dtypes)
    }

    /// Launches the forward pass.
    ///
    /// `saved` holds at least [`Self::saved_len`] elements. It is not needed if there is to be no backward pass, unless
    /// the operator [keeps](crate::Operator::kept) a tensor, which has no other place. `workspace` is not needed if
    /// [`Self::workspace_bytes`] is 0. The former contents of both do not matter.
    ///
    /// # Errors
    /// The errors of [`Self::bind`], [`Error::DtypeMismatch`], [`Error::DeviceMismatch`], [`Error::BufferTooSmall`],
    /// [`Error::WorkspaceTooSmall`], [`Error::BadAddress`], [`Error::Aliased`], and [`Error::CudaLibrary`] without
    /// cuBLASLt where it is needed: all of these before anything is launched. Also [`Error::Cuda`].
    pub fn forward(
        &self,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: TensorMut<'_>,
        saved: Option<TensorMut<'_>>,
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.checks().stream(stream, &self.device)?;
        let queue = Queue::of(stream);
        // SAFETY: the stream is alive, and of the context of the device.
        unsafe { self.forward_on(&queue, inputs, output, saved, workspace, None) }
    }

    /// Does the same as [`Self::forward`], on a stream that is not cudarc's.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    ///
    /// # Safety
    /// The stream is valid and belongs to the primary context of the device. If tensors are memory of cudarc, only its
    /// events order the uses of that memory.
    pub unsafe fn forward_raw(
        &self,
        stream: RawStream,
        inputs: &[Tensor<'_>],
        output: TensorMut<'_>,
        saved: Option<TensorMut<'_>>,
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe {
            let queue = Queue::from_raw(stream, self.device.context());
            self.forward_on(&queue, inputs, output, saved, workspace, None)
        }
    }

    /// Launches the backward pass, which computes the gradients of the inputs from the gradient of the output.
    ///
    /// `output` and `saved` are the values that [`Self::forward`] wrote. `saved` is not needed if [`Self::saved_len`]
    /// is 0. `grads` has one entry for each input. A gradient that is `None` is not written, and where possible not
    /// computed.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the CPU's, and the stream"
    )]
    pub fn backward(
        &self,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: Tensor<'_>,
        saved: Option<Tensor<'_>>,
        grad_output: Tensor<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.checks().stream(stream, &self.device)?;
        let queue = Queue::of(stream);
        let given = Given::new(inputs, output, saved, grad_output);
        // SAFETY: the stream is alive, and of the context of the device.
        unsafe { self.backward_on(&queue, &given, grads, workspace) }.map(drop)
    }

    /// Does the same as [`Self::backward`], but adds the gradient of the first input to the values that are there, like
    /// [`crate::Operator::backward_adding`].
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::NotAdded`] for operators that cannot.
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the CPU's, and the stream"
    )]
    pub fn backward_adding(
        &self,
        stream: &CudaStream,
        inputs: &[Tensor<'_>],
        output: Tensor<'_>,
        saved: Option<Tensor<'_>>,
        grad_output: Tensor<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        self.operator.check_adds()?;
        self.checks().stream(stream, &self.device)?;
        let queue = Queue::of(stream);
        let given = Given::new(inputs, output, saved, grad_output).adding();
        // SAFETY: the stream is alive, and of the context of the device.
        unsafe { self.backward_on(&queue, &given, grads, workspace) }.map(drop)
    }

    /// Does the same as [`Self::backward`], on a stream that is not cudarc's.
    ///
    /// # Errors
    /// The errors of [`Self::forward`].
    ///
    /// # Safety
    /// The contract of [`Self::forward_raw`] holds.
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the CPU's, and the stream"
    )]
    pub unsafe fn backward_raw(
        &self,
        stream: RawStream,
        inputs: &[Tensor<'_>],
        output: Tensor<'_>,
        saved: Option<Tensor<'_>>,
        grad_output: Tensor<'_>,
        grads: &mut [Option<TensorMut<'_>>],
        workspace: Option<Scratch<'_>>,
    ) -> Result<(), Error> {
        let given = Given::new(inputs, output, saved, grad_output);
        // SAFETY: the caller promises it.
        unsafe {
            let queue = Queue::from_raw(stream, self.device.context());
            self.backward_on(&queue, &given, grads, workspace).map(drop)
        }
    }

    pub(super) fn checks(&self) -> Checks<'_> {
        Checks {
            operator: &self.operator,
            ordinal: self.device.ordinal(),
        }
    }
}
