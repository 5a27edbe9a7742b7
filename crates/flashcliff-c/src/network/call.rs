//! The structs of a call, as C writes them.

use std::ffi::{c_int, c_void};

use flashcliff_network::Rows;

use super::relation::Relation;
use super::tensors::{Given, Gradients};
use crate::memory::slice;
use crate::status::Failure;

/// `fc_network_batch`: the sizes of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NetworkBatch {
    pub(crate) samples: usize,
    pub(crate) items: usize,
    pub(crate) context_items: usize,
    pub(crate) edges: usize,
    pub(crate) graphs: usize,
    pub(crate) others: [usize; Rows::MOST_OTHERS],
}

impl NetworkBatch {
    pub(super) fn rows(self) -> Rows {
        Rows {
            edges: self.edges,
            graphs: self.graphs,
            others: self.others,
            ..Rows::new(self.samples, self.items).with_context(self.context_items)
        }
    }
}

/// `fc_network_call`: the tensors of a run.
#[repr(C)]
pub struct NetworkCall {
    inputs: *const *const c_void,
    input_count: usize,
    outputs: *const *mut c_void,
    output_count: usize,
    offsets: *const usize,
    offset_count: usize,
    context_offsets: *const usize,
    context_offset_count: usize,
    parameters: *const *const c_void,
    parameter_count: usize,
    relations: *const *const Relation,
    relation_count: usize,
}

/// `fc_network_gradients`: the gradients of a run.
#[repr(C)]
pub struct NetworkGradients {
    outputs: *const *const c_void,
    output_count: usize,
    grads: *const *mut c_void,
    grad_count: usize,
}

#[cfg(test)]
impl NetworkGradients {
    /// Gradients of outputs, and of inputs and parameters.
    pub(crate) fn of(outputs: &[*const c_void], grads: &[*mut c_void]) -> Self {
        Self {
            outputs: outputs.as_ptr(),
            output_count: outputs.len(),
            grads: grads.as_ptr(),
            grad_count: grads.len(),
        }
    }
}

#[cfg(test)]
impl NetworkCall {
    /// A call without sequences.
    pub(crate) fn of(inputs: &[*const c_void], outputs: &[*mut c_void]) -> Self {
        Self {
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
            outputs: outputs.as_ptr(),
            output_count: outputs.len(),
            offsets: std::ptr::null(),
            offset_count: 0,
            context_offsets: std::ptr::null(),
            context_offset_count: 0,
            parameters: std::ptr::null(),
            parameter_count: 0,
            relations: std::ptr::null(),
            relation_count: 0,
        }
    }

    /// The call with parameters of the caller.
    pub(crate) fn with(self, parameters: &[*const c_void]) -> Self {
        Self {
            parameters: parameters.as_ptr(),
            parameter_count: parameters.len(),
            ..self
        }
    }

    /// The call with relations.
    pub(crate) fn along(self, relations: &[*const Relation]) -> Self {
        Self {
            relations: relations.as_ptr(),
            relation_count: relations.len(),
            ..self
        }
    }

    /// The call with sequences.
    pub(crate) fn within(self, offsets: &[usize]) -> Self {
        Self {
            offsets: offsets.as_ptr(),
            offset_count: offsets.len(),
            ..self
        }
    }
}

/// The gradients that are asked for; `None` without a list.
///
/// # Safety
/// `wanted` is null or has so many numbers.
pub(super) unsafe fn chosen(
    wanted: *const c_int,
    count: usize,
) -> Result<Option<Vec<bool>>, Failure> {
    if wanted.is_null() && count == 0 {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let wanted = unsafe { slice("wanted", wanted, count)? };
    Ok(Some(wanted.iter().map(|&own| own != 0).collect()))
}

/// The tensors of a call.
///
/// # Safety
/// `call` is null or a call with as many pointers and offsets as it says, whose relations are alive.
pub(super) unsafe fn read<'a>(call: *const NetworkCall) -> Result<Given<'a>, Failure> {
    // SAFETY: the caller promises it.
    let call = unsafe { call.as_ref() }.ok_or_else(|| Failure::null("call"))?;
    // SAFETY: the caller promises it.
    unsafe {
        Ok(Given {
            inputs: slice("inputs", call.inputs, call.input_count)?,
            outputs: slice("outputs", call.outputs, call.output_count)?,
            parameters: slice("parameters", call.parameters, call.parameter_count)?,
            // A null pointer is not a relation.
            relations: slice("relations", call.relations.cast(), call.relation_count)?,
            offsets: match call.offsets.is_null() && call.offset_count == 0 {
                true => None,
                false => Some([
                    slice("offsets", call.offsets, call.offset_count)?,
                    slice(
                        "context_offsets",
                        call.context_offsets,
                        call.context_offset_count,
                    )?,
                ]),
            },
        })
    }
}

/// The gradients of a call.
///
/// # Safety
/// `gradients` is null or gradients with as many pointers as they say.
pub(super) unsafe fn read_gradients<'a>(
    gradients: *const NetworkGradients,
) -> Result<Gradients<'a>, Failure> {
    // SAFETY: the caller promises it.
    let gradients = unsafe { gradients.as_ref() }.ok_or_else(|| Failure::null("gradients"))?;
    // SAFETY: the caller promises it.
    unsafe {
        Ok(Gradients {
            outputs: slice("outputs", gradients.outputs, gradients.output_count)?,
            grads: slice("grads", gradients.grads, gradients.grad_count)?,
        })
    }
}
