//! Products that are zero whatever their operands are: memory is cleared.

use super::call::Call;
use crate::Error;
use crate::operator::TensorSpec;

/// Clears the output.
///
/// # Safety
/// The call is checked.
pub(super) unsafe fn forward(call: &Call, output: &TensorSpec) -> Result<(), Error> {
    // SAFETY: the output has the bytes of its spec.
    unsafe { call.zero(call.output, bytes(call, output)) }
}

/// Clears the gradients that are wanted.
///
/// # Safety
/// The call is checked.
pub(super) unsafe fn backward(call: &Call, inputs: &[TensorSpec]) -> Result<(), Error> {
    for (grad, spec) in call.grads.iter().zip(inputs) {
        if let Some(grad) = *grad {
            // SAFETY: a gradient has the bytes of its input.
            unsafe { call.zero(grad, bytes(call, spec))? };
        }
    }
    Ok(())
}

fn bytes(call: &Call, spec: &TensorSpec) -> usize {
    let elements: usize = spec.shape(&call.dims).iter().product();
    elements * call.dtypes.lanes.bytes()
}
