//! On a GPU memory is cleared.

use super::Zero;
use crate::Error;
use crate::cuda::OnCuda;
use crate::cuda::call::{Call, Gradients};
use crate::cuda::device::Device;
use crate::operator::{Operator, TensorSpec};

impl Zero {
    pub(crate) fn on_cuda(&self, _: &Operator, _: &Device) -> Result<Self, Error> {
        Ok(self.clone())
    }
}

impl OnCuda for Zero {
    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { clear(call, results, &self.outputs) }
    }

    unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { clear(call, &call.grads, &self.inputs) }
    }
}

/// Clears the tensors that are wanted.
///
/// # Safety
/// The call is checked, and the tensors match the specs.
unsafe fn clear(call: &Call, tensors: &Gradients, specs: &[TensorSpec]) -> Result<(), Error> {
    for (tensor, spec) in tensors.iter().zip(specs) {
        if let Some(tensor) = *tensor {
            let elements: usize = spec.sizes(&call.dims).product();
            // SAFETY: the caller promises it.
            unsafe { call.zero(tensor, elements * call.dtypes.lanes.bytes())? };
        }
    }
    Ok(())
}
