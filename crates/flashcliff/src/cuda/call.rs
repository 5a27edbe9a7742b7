//! A checked call, with addresses in place of tensors.

use std::ffi::c_void;
use std::ptr;

use flashcliff_sys as sys;

use super::dtype::Dtypes;
use super::launches;
use crate::Error;
use crate::cuda::{Address, RawStream};
use crate::operator::Dims;

/// The largest number of inputs of an operator.
pub(crate) const MAX_INPUTS: usize = (sys::FC_MAX_TENSORS + sys::FC_MAX_PARAMS) as usize;

/// The arguments of a pass. Everything in it is checked: shapes, element types, devices, addresses and overlaps.
pub(crate) struct Call {
    pub(crate) dims: Dims,
    pub(crate) dtypes: Dtypes,
    /// The inputs, in the order of the operator.
    pub(crate) inputs: [Address; MAX_INPUTS],
    /// Forward pass: the output, which is written. Backward pass: the gradient of the output.
    pub(crate) output: Address,
    /// Backward pass: the output of the forward pass.
    pub(crate) result: Address,
    /// The saved values. Null if a forward pass need not save anything.
    pub(crate) saved: Address,
    /// The gradients that a backward pass writes; `None` for those that are not wanted.
    pub(crate) grads: Gradients,
    /// Whether the gradient of the first input is added to what is there.
    pub(crate) adds: bool,
    pub(crate) workspace: Address,
    pub(crate) workspace_bytes: usize,
    /// Memory of a packing; the default without one.
    pub(crate) kept: Kept,
    pub(crate) stream: RawStream,
}

/// Memory for what a pass would otherwise make in its workspace, as addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// The weight as the products of this pass read it, packed ahead.
    pub(crate) weight: Option<Address>,
    /// Room for the weight that the pass packs.
    pub(crate) room: Option<Address>,
    /// The bias as products read it, packed ahead.
    pub(crate) bias: Option<Address>,
    /// Room for the parts of the gradients of parameters, which are added up after the pass.
    pub(crate) parts: Option<Address>,
}

impl Call {
    /// Sets bytes to zero.
    ///
    /// # Safety
    /// The call is checked, and so many bytes may be written at the address.
    pub(crate) unsafe fn zero(&self, ptr: Address, bytes: usize) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { launches::clear(ptr, bytes, self.stream) }
    }

    /// Copies bytes.
    ///
    /// # Safety
    /// The call is checked, and both addresses hold so many bytes, which do not overlap.
    pub(crate) unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { launches::copy(from, to, bytes, self.stream) }
    }
}

/// The gradients of the inputs, in order.
pub(crate) type Gradients = [Option<Address>; MAX_INPUTS];

/// A list in which all gradients are wanted and none has an address. It serves to ask for the size of workspaces.
pub(crate) const ALL_GRADIENTS: Gradients = [Some(0); MAX_INPUTS];

/// No gradients.
pub(crate) const NO_GRADIENTS: Gradients = [None; MAX_INPUTS];

/// A device address as a C pointer.
pub(crate) fn address(ptr: u64) -> *mut c_void {
    ptr::without_provenance_mut(ptr as usize)
}

/// The results of an operator with one output.
pub(crate) const fn only(output: Address) -> Gradients {
    let mut results = NO_GRADIENTS;
    results[0] = Some(output);
    results
}
