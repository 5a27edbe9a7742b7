//! A checked call, as addresses.

use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use flashcliff_sys as sys;

use super::dtype::Dtypes;
use super::fault;
use crate::Error;
use crate::operator::Dims;

/// The most inputs of an operator.
pub(super) const MAX_INPUTS: usize = (sys::FC_MAX_TENSORS + sys::FC_MAX_PARAMS) as usize;

/// What a pass reads and writes. Everything is checked: shapes, element types, devices, addresses
/// and overlaps.
pub(super) struct Call {
    pub(super) dims: Dims,
    pub(super) dtypes: Dtypes,
    /// In the order of the operator.
    pub(super) inputs: [CUdeviceptr; MAX_INPUTS],
    /// Forward: what is written. Backward: the gradient of it.
    pub(super) output: CUdeviceptr,
    /// Backward: what the forward pass wrote.
    pub(super) result: CUdeviceptr,
    /// Null if a forward pass need not save anything.
    pub(super) saved: CUdeviceptr,
    /// Of a backward pass; `None` is not wanted.
    pub(super) grads: Gradients,
    pub(super) workspace: CUdeviceptr,
    pub(super) workspace_bytes: usize,
    pub(super) stream: CUstream,
}

impl Call {
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// So many bytes may be written at the address, and the call is checked.
    pub(super) unsafe fn zero(&self, ptr: CUdeviceptr, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's.
        let set = unsafe { result::memset_d8_async(ptr, 0, bytes, self.stream) };
        set.map_err(fault::driver("cuMemsetD8Async"))
    }
}

/// The gradients of the inputs, in order.
pub(super) type Gradients = [Option<CUdeviceptr>; MAX_INPUTS];

/// Gradients of which all are wanted and none has an address, to ask for the size of workspaces.
pub(super) const ALL_GRADIENTS: Gradients = [Some(0); MAX_INPUTS];

/// No gradients.
pub(super) const NO_GRADIENTS: Gradients = [None; MAX_INPUTS];
