//! Passes on tensors with strides of their own.

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use flashcliff_sys as sys;

use super::{Operator, Work};
use crate::operator::{Dims, Pass};
use crate::{Dtype, Error};

/// A tensor `[blades, batch, channels]` in device memory. Channels are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedTensor {
    /// The address.
    pub address: CUdeviceptr,
    /// The elements from a blade to the next.
    pub blade_stride: usize,
    /// The elements from a batch element to the next.
    pub row_stride: usize,
}

impl StridedTensor {
    pub(in crate::cuda) fn strides(self) -> sys::fc_strides {
        sys::fc_strides {
            component: self.blade_stride as i64,
            batch: self.row_stride as i64,
        }
    }
}

/// The sizes that all tensors of a strided pass share, and the type of their elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedSizes {
    /// The batch elements.
    pub batch: usize,
    /// The channels.
    pub channels: usize,
    /// The type of all tensors.
    pub dtype: Dtype,
}

impl Operator {
    /// The forward pass on tensors with strides of their own, for operators of independent lanes without parameters, such as plain
    /// products and involutions. So tensors can be parts of the rows of a matrix.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] for other operators, [`Error::TensorCount`], [`Error::Cuda`].
    ///
    /// # Safety
    /// The stream belongs to the primary context of the device. Every tensor holds, on that device, what its strides and the sizes
    /// reach, aligned to an element, until the work on the stream is done. Written memory overlaps nothing else.
    pub unsafe fn forward_strided(
        &self,
        stream: CUstream,
        sizes: StridedSizes,
        inputs: &[StridedTensor],
        output: StridedTensor,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.strided(Pass::Forward, stream, sizes, inputs, &[Some(output)]) }
    }

    /// The backward pass on tensors with strides of their own. Gradients that are `None` are not wanted.
    ///
    /// # Errors
    /// The errors of [`Self::forward_strided`].
    ///
    /// # Safety
    /// The contract of [`Self::forward_strided`] holds.
    pub unsafe fn backward_strided(
        &self,
        stream: CUstream,
        sizes: StridedSizes,
        inputs: &[StridedTensor],
        grad_output: StridedTensor,
        grads: &[Option<StridedTensor>],
    ) -> Result<(), Error> {
        let read: Vec<_> = inputs.iter().copied().chain([grad_output]).collect();
        // SAFETY: the caller promises it.
        unsafe { self.strided(Pass::Backward, stream, sizes, &read, grads) }
    }

    /// # Safety
    /// The contract of [`Self::forward_strided`] holds.
    unsafe fn strided(
        &self,
        pass: Pass,
        stream: CUstream,
        sizes: StridedSizes,
        read: &[StridedTensor],
        written: &[Option<StridedTensor>],
    ) -> Result<(), Error> {
        let Work::Lanes(lanes) = &self.work else {
            return Err(Error::UnsupportedOnCuda {
                operator: self.operator.name().to_owned(),
                reason: "it is not one kernel, and so takes no tensors with strides".to_owned(),
            });
        };
        self.device.make_current()?;
        let dims = Dims {
            batch: sizes.batch,
            in_channels: sizes.channels,
            out_channels: sizes.channels,
            scalar_channels: 0,
        };
        // SAFETY: the caller promises it, and the context is current.
        unsafe { lanes.strided(pass, stream, &dims, sizes.dtype, read, written) }
    }
}
