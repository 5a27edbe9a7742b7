//! Operators on NVIDIA GPUs, over memory and on streams of the caller.
//!
//! The functions exist in every build, so that one header fits all. Without the feature `cuda` no operator can be bound to a
//! GPU, and the error says how to install a library that can.

use std::ffi::{c_int, c_void};

#[cfg(feature = "cuda")]
#[path = "cuda/with.rs"]
mod backend;
#[cfg(not(feature = "cuda"))]
#[path = "cuda/without.rs"]
mod backend;

#[cfg(not(feature = "cuda"))]
pub(crate) use backend::no_cuda;

use crate::memory::{Inputs, Tensor, inputs, slice};
use crate::operator::{MAX_AXES, Operator, known};
use crate::status::{Failure, guarded};

/// `fc_cuda_operator`: an operator on a GPU, which C knows by its address only.
pub struct CudaOperator(backend::Bound);

/// `fc_cuda_call`: what both passes of a call have in common.
#[repr(C)]
pub struct CudaCall {
    dtype: c_int,
    parameter_dtype: c_int,
    inputs: *const Tensor,
    count: usize,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
}

/// `fc_cuda_plan`: the sizes of the memory of a call.
#[repr(C)]
pub struct CudaPlan {
    output_shape: [usize; MAX_AXES],
    output_axes: usize,
    output_len: usize,
    saved_bytes: usize,
    forward_workspace_bytes: usize,
    backward_workspace_bytes: usize,
}

/// A call with its inputs.
pub(crate) struct Call<'a> {
    pub(crate) given: &'a CudaCall,
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "without CUDA nobody reads them")
    )]
    pub(crate) inputs: Inputs<'a>,
}

/// # Safety
/// `call` is null or a call, whose inputs are as many tensors as it says.
unsafe fn read<'a>(
    operator: &flashcliff::Operator,
    call: *const CudaCall,
) -> Result<Call<'a>, Failure> {
    // SAFETY: the caller promises it.
    let given = unsafe { call.as_ref() }.ok_or_else(|| Failure::null("call"))?;
    // SAFETY: the caller promises it.
    let inputs = unsafe { inputs(operator, given.inputs, given.count)? };
    Ok(Call { given, inputs })
}

/// # Safety
/// `operator` comes from [`fc_cuda_operator_new`] and was not freed, or it is null.
unsafe fn bound<'a>(operator: *const CudaOperator) -> Result<&'a backend::Bound, Failure> {
    // SAFETY: the caller promises it.
    let operator = unsafe { operator.as_ref() };
    operator
        .map(|bound| &bound.0)
        .ok_or_else(|| Failure::null("operator"))
}

/// The number of a GPU, and whether matrix products may round to TF32.
pub(crate) fn target(device: c_int, precision: c_int) -> Result<(usize, bool), Failure> {
    let device = usize::try_from(device).map_err(|_| {
        Failure::Argument(format!("device: expected a number from 0, got {device}"))
    })?;
    match precision {
        0 => Ok((device, false)),
        1 => Ok((device, true)),
        other => Err(Failure::Argument(format!(
            "precision: expected FC_HIGHEST or FC_TF32, got {other}"
        ))),
    }
}

/// Binds an operator to a GPU.
///
/// # Safety
/// `operator` is alive; a pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_operator_new(
    operator: *const Operator,
    device: c_int,
    precision: c_int,
    out: *mut *mut CudaOperator,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        // SAFETY: the caller promises it, and it is not null.
        unsafe { *out = std::ptr::null_mut() };
        // SAFETY: the caller promises it.
        let operator = unsafe { known(operator)? };
        let (device, tf32) = target(device, precision)?;
        let made = backend::Bound::new(operator, device, tf32)?;
        // SAFETY: as above.
        unsafe { *out = Box::into_raw(Box::new(CudaOperator(made))) };
        Ok(())
    })
}

/// Frees an operator on a GPU. Null is left alone.
///
/// # Safety
/// `operator` comes from [`fc_cuda_operator_new`], was not freed, and nobody uses it from now on; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_operator_free(operator: *mut CudaOperator) {
    if !operator.is_null() {
        // SAFETY: the caller promises that the box is its own.
        drop(unsafe { Box::from_raw(operator) });
    }
}

/// Loads or compiles the kernels of a call, and writes the sizes of its memory.
///
/// # Safety
/// `operator` is alive; `call` is a call with as many inputs as it says; a plan can be written to `plan`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_plan_call(
    operator: *const CudaOperator,
    call: *const CudaCall,
    plan: *mut CudaPlan,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let operator = unsafe { bound(operator)? };
        // SAFETY: the caller promises it.
        let call = unsafe { read(operator.operator(), call)? };
        if plan.is_null() {
            return Err(Failure::null("plan"));
        }
        let written = operator.plan(&call)?;
        // SAFETY: the caller promises it, and it is not null.
        unsafe { plan.write(written) };
        Ok(())
    })
}

/// Launches the forward pass.
///
/// # Safety
/// `operator` is alive; `call` is a call with as many inputs as it says. All data are addresses on the GPU of as much as
/// [`fc_cuda_plan_call`] says, and stay so until the work of the stream is done; nobody else writes there meanwhile. The stream
/// belongs to the primary context of the GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_forward(
    operator: *const CudaOperator,
    call: *const CudaCall,
    output: *mut c_void,
    saved: *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let operator = unsafe { bound(operator)? };
        // SAFETY: the caller promises it.
        let call = unsafe { read(operator.operator(), call)? };
        // SAFETY: the caller promises it.
        unsafe { operator.forward(&call, output, saved) }
    })
}

/// Launches the backward pass; gradients whose pointers are null are not wanted.
///
/// # Safety
/// The promises of [`fc_cuda_forward`] hold, which has written `output` and `saved`. At `grad_output` there is as much as in
/// `output`, and at `grads` there are as many pointers, in memory of the CPU, as inputs: each null or to as much as in its input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_backward(
    operator: *const CudaOperator,
    call: *const CudaCall,
    output: *const c_void,
    saved: *const c_void,
    grad_output: *const c_void,
    grads: *const *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let operator = unsafe { bound(operator)? };
        // SAFETY: the caller promises it.
        let call = unsafe { read(operator.operator(), call)? };
        // SAFETY: the caller promises as many pointers as inputs.
        let grads = unsafe { slice("grads", grads, call.given.count)? };
        // SAFETY: the caller promises it.
        unsafe { operator.backward(&call, [output, saved, grad_output], grads) }
    })
}
