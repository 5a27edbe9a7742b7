//! A checked call, with addresses in place of tensors.

use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use flashcliff_sys as sys;

use super::dtype::Dtypes;
use super::fault;
use crate::Error;
use crate::operator::Dims;

/// The largest number of inputs of an operator.
pub(super) const MAX_INPUTS: usize = (sys::FC_MAX_TENSORS + sys::FC_MAX_PARAMS) as usize;

/// The arguments of a pass. Everything in it is checked: shapes, element types, devices, addresses and overlaps.
pub(super) struct Call {
    pub(super) dims: Dims,
    pub(super) dtypes: Dtypes,
    /// The inputs, in the order of the operator.
    pub(super) inputs: [CUdeviceptr; MAX_INPUTS],
    /// Forward pass: the output, which is written. Backward pass: the gradient of the output.
    pub(super) output: CUdeviceptr,
    /// Backward pass: the output of the forward pass.
    pub(super) result: CUdeviceptr,
    /// The saved values. Null if a forward pass need not save anything.
    pub(super) saved: CUdeviceptr,
    /// The gradients that a backward pass writes; `None` for those that are not wanted.
    pub(super) grads: Gradients,
    pub(super) workspace: CUdeviceptr,
    pub(super) workspace_bytes: usize,
    /// Memory of a packing; the default without one.
    pub(super) kept: Kept,
    pub(super) stream: CUstream,
}

/// Memory for what a pass would otherwise make in its workspace, as addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    /// The weight as the products of this pass read it, packed ahead.
    pub(super) weight: Option<CUdeviceptr>,
    /// Room for the weight that the pass packs.
    pub(super) room: Option<CUdeviceptr>,
    /// The bias as products read it, packed ahead.
    pub(super) bias: Option<CUdeviceptr>,
    /// Room for the parts of the gradients of parameters, which are added up after the pass.
    pub(super) parts: Option<CUdeviceptr>,
}

impl Call {
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// The call is checked, and so many bytes may be written at the address.
    pub(super) unsafe fn zero(&self, ptr: CUdeviceptr, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller promises it.
        let set = unsafe { result::memset_d8_async(ptr, 0, bytes, self.stream) };
        set.map_err(fault::driver("cuMemsetD8Async"))
    }
}

/// The gradients of the inputs, in order.
pub(super) type Gradients = [Option<CUdeviceptr>; MAX_INPUTS];

/// A list in which all gradients are wanted and none has an address. It serves to ask for the size of workspaces.
pub(super) const ALL_GRADIENTS: Gradients = [Some(0); MAX_INPUTS];

/// No gradients.
pub(super) const NO_GRADIENTS: Gradients = [None; MAX_INPUTS];
