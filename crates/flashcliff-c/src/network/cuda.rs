//! Networks on NVIDIA GPUs, over memory and on streams of the caller.
//!
//! The functions exist in every build, as the functions of operators do.

use std::ffi::{c_char, c_int, c_void};

#[cfg(feature = "cuda")]
#[path = "cuda/with.rs"]
mod backend;
#[cfg(not(feature = "cuda"))]
#[path = "cuda/without.rs"]
mod backend;

#[cfg(feature = "cuda")]
pub(super) use backend::OnGpus;
use flashcliff_network::Rows;

use super::call::{self, NetworkBatch, NetworkCall, NetworkGradients};
use super::explain::{Machine, explained};
use super::{Network, known, made};
use crate::cuda::target;
use crate::status::{Failure, guarded};

/// `fc_cuda_network`: a network planned for a batch on a GPU, which C knows by its address only.
pub struct CudaNetwork(backend::Planned);

/// `fc_cuda_network_sizes`: the bytes of memory that the caller lends to runs.
#[repr(C)]
pub struct CudaNetworkSizes {
    kept_bytes: usize,
    run_workspace_bytes: usize,
    backward_workspace_bytes: usize,
}

/// `fc_cuda_network_call`: the tensors and the memory of a run.
#[repr(C)]
pub struct CudaNetworkCall {
    tensors: NetworkCall,
    device_offsets: *const c_void,
    device_context_offsets: *const c_void,
    kept: *mut c_void,
    kept_bytes: usize,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
}

/// The sizes, types and device that a plan is made for.
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "without CUDA nobody reads it")
)]
struct Request<'a> {
    network: &'a Network,
    rows: Rows,
    dtype: c_int,
    /// For each input and each parameter whether there is a gradient; `None` without gradients.
    wanted: Option<Vec<bool>>,
    /// The number of the GPU, and whether matrix products may round to TF32.
    target: (usize, bool),
}

/// # Safety
/// `network` comes from [`fc_cuda_network_plan`] and was not freed, or it is null.
unsafe fn planned<'a>(network: *const CudaNetwork) -> Result<&'a backend::Planned, Failure> {
    // SAFETY: the caller promises it.
    let network = unsafe { network.as_ref() };
    network
        .map(|planned| &planned.0)
        .ok_or_else(|| Failure::null("network"))
}

/// # Safety
/// `call` is a call, or it is null.
unsafe fn given<'a>(call: *const CudaNetworkCall) -> Result<&'a CudaNetworkCall, Failure> {
    // SAFETY: the caller promises it.
    unsafe { call.as_ref() }.ok_or_else(|| Failure::null("call"))
}

/// Plans a network for a batch on a GPU, and copies its weights there.
///
/// # Safety
/// `network` is alive; `wanted` is null or has as many numbers as `wanted_count` says; a pointer can be written to `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_network_plan(
    network: *const Network,
    batch: NetworkBatch,
    dtype: c_int,
    wanted: *const c_int,
    wanted_count: usize,
    device: c_int,
    precision: c_int,
    out: *mut *mut CudaNetwork,
) -> c_int {
    guarded(|| {
        let make = || {
            // SAFETY: the caller promises it.
            let (network, wanted) =
                unsafe { (known(network)?, call::chosen(wanted, wanted_count)?) };
            let request = Request {
                network,
                rows: batch.rows(),
                dtype,
                wanted,
                target: target(device, precision)?,
            };
            Ok(CudaNetwork(backend::Planned::new(&request)?))
        };
        // SAFETY: the caller promises room for a pointer.
        unsafe { made(out, make) }
    })
}

/// Frees a network on a GPU. Null is left alone.
///
/// # Safety
/// `network` comes from [`fc_cuda_network_plan`], was not freed, nobody uses it from now on, and the work of its runs
/// is done; or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_network_free(network: *mut CudaNetwork) {
    if !network.is_null() {
        // SAFETY: the caller promises that the box is its own.
        drop(unsafe { Box::from_raw(network) });
    }
}

/// Writes the bytes of memory that runs need.
///
/// # Safety
/// `network` is alive; sizes can be written to `sizes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_network_sizes_of(
    network: *const CudaNetwork,
    sizes: *mut CudaNetworkSizes,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { planned(network)? };
        if sizes.is_null() {
            return Err(Failure::null("sizes"));
        }
        // SAFETY: the caller promises it, and it is not null.
        unsafe { sizes.write(network.sizes()) };
        Ok(())
    })
}

/// Explains a network on a GPU.
///
/// # Safety
/// `network` is alive; `machine` is null or a machine; a pointer can be written to `page`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_network_explain(
    network: *const CudaNetwork,
    machine: *const Machine,
    page: *mut *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        let network = unsafe { planned(network)? };
        // SAFETY: the caller promises it.
        unsafe { explained(machine, page, |machine| network.explain(machine)) }
    })
}

/// Launches a run.
///
/// # Safety
/// `network` is alive; `call` is a call with as many pointers and offsets as it says, in memory of the CPU. All data
/// are addresses on the GPU of as much as the ends of the network and [`fc_cuda_network_sizes_of`] say, and stay so
/// until the work of the stream is done; nobody else uses what is written, and nobody writes what is read, but for
/// work in the order of the stream. The stream belongs to the primary context of the GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_network_run(
    network: *const CudaNetwork,
    call: *const CudaNetworkCall,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        unsafe {
            let (network, given) = (planned(network)?, given(call)?);
            network.run(given, &call::read(&raw const given.tensors)?)
        }
    })
}

/// Launches the gradients of a run.
///
/// # Safety
/// The promises of [`fc_cuda_network_run`] hold, which has written the outputs and what is kept. `gradients` has as
/// many pointers as it says, in memory of the CPU, to as much on the GPU as in the tensors that they are of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fc_cuda_network_backward(
    network: *const CudaNetwork,
    call: *const CudaNetworkCall,
    gradients: *const NetworkGradients,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises it.
        unsafe {
            let (network, given) = (planned(network)?, given(call)?);
            let gradients = call::read_gradients(gradients)?;
            network.backward(given, &call::read(&raw const given.tensors)?, &gradients)
        }
    })
}
