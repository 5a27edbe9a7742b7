//! Sums over GPUs by NCCL.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use candle_core::{CudaDevice, Device, Tensor};
use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::{CudaStream, DriverError};
use flashcliff::cuda::cudarc::nccl::result::{self, NcclError, NcclStatus};
use flashcliff::cuda::cudarc::nccl::sys;
use flashcliff_cuda_loader::Library;

use super::fault::Fault;
use super::links::Links;
use crate::Error;
use crate::objective::Objective;
use crate::op::gpu::memory::{self, View};

/// A communicator of NCCL: all ranks of a run, each with one GPU.
///
/// Its calls are collective: all ranks make the same calls in the same order. They are launched on the stream of the device, wait for
/// nothing, and can be captured. Every rank gets the same bits.
///
/// CUDA graphs that captured a call must be dropped before the communicator.
pub struct Communicator {
    comm: sys::ncclComm_t,
    device: CudaDevice,
    /// The stream on which gradients are averaged beside the backward pass.
    beside: Arc<CudaStream>,
}

/// The priority of work beside the backward pass. Lower numbers go first; the backward pass has 0.
const PRIORITY: i32 = -1;

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").finish_non_exhaustive()
    }
}

#[allow(unsafe_code, reason = "cudarc's interface of NCCL is unsafe")]
impl Communicator {
    /// Checks that there is NCCL.
    ///
    /// # Errors
    /// [`Fault::NoNccl`].
    pub fn check() -> Result<(), Error> {
        let loaded = Library::Nccl.load().map_err(|tried| Fault::NoNccl {
            tried: tried.to_owned(),
        });
        Ok(loaded?)
    }

    /// A communicator of all ranks. Each rank calls this function at the same point of its work, with its own GPU.
    ///
    /// # Errors
    /// [`Fault::NoNccl`] without the library; [`Fault::Nccl`]; the errors of [`Links`]; a device that is not a GPU.
    pub fn new(links: &Links, device: &Device) -> Result<Self, Error> {
        let Device::Cuda(device) = device else {
            return Err(memory::misplaced("communicator"));
        };
        Self::check()?;
        let id = match links.rank() {
            0 => {
                let id = result::get_uniqueid();
                let id = id.map_err(|error| fault("ncclGetUniqueId", &error, ptr::null_mut()))?;
                links.send(&id.internal.map(|byte| byte as u8))?;
                id
            }
            _ => {
                let (rank, bytes) = links.receive()?;
                let bytes: Result<[u8; 128], _> = bytes.try_into();
                let bytes = bytes.map_err(|bytes: Vec<u8>| Fault::Unexpected {
                    rank,
                    expected: "the 128 bytes of an id of NCCL",
                    got: format!("{} bytes", bytes.len()),
                })?;
                let internal = bytes.map(|byte| byte as c_char);
                sys::ncclUniqueId { internal }
            }
        };
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let context = device.cuda_stream().context().clone();
        context
            .bind_to_thread()
            .map_err(driver("cuCtxSetCurrent"))?;
        let mut comm = ptr::null_mut();
        // SAFETY: `comm` is a place for the communicator, and the library is loaded. The context of the device is that of this thread.
        let made = unsafe {
            let (size, rank) = (number(links.size()), number(links.rank()));
            result::comm_init_rank(&raw mut comm, size, id, rank)
        };
        made.map_err(|error| fault("ncclCommInitRank", &error, ptr::null_mut()))?;
        let beside = context.new_stream_with_priority(PRIORITY);
        Ok(Self {
            comm,
            beside: beside.map_err(driver("cuStreamCreateWithPriority"))?,
            device: device.clone(),
        })
    }

    /// Fills contiguous tensors on all ranks with their values on rank 0. Nothing waits.
    ///
    /// # Errors
    /// [`Fault::Nccl`]; a tensor that is not contiguous, or not on a GPU.
    pub fn broadcast(&self, tensors: &[Tensor]) -> Result<(), Error> {
        memory::with_views(tensors, |views| {
            let lens = tensors.iter().map(Tensor::elem_count);
            let buffers: Vec<(&View, usize)> = views.iter().zip(lens).collect();
            let stream = self.device.cuda_stream();
            self.each(&stream, &buffers, |(data, count, dtype)| {
                let (call, stream) = ("ncclBroadcast", stream.cu_stream().cast());
                // SAFETY: `each` gives memory of `count` elements. The communicator and the stream are alive.
                let done =
                    unsafe { result::broadcast(data, data, count, dtype, 0, self.comm, stream) };
                done.map_err(|error| self.fault(call, &error))
            })
        })
    }

    /// Makes the loss of the last batch of an objective, and its gradients, their means over the ranks. Nothing waits.
    ///
    /// The means are computed in the type of the gradients, in an order that depends on the number of ranks.
    ///
    /// # Errors
    /// [`Fault::Nccl`]; an objective or a loss that is not on a GPU; the errors of candle.
    pub fn average(&self, objective: &mut Objective, loss: &Tensor) -> Result<(), Error> {
        let stream = self.device.cuda_stream();
        objective.with_gradients(loss, |buffers| self.mean(&stream, buffers))
    }

    /// Computes the error of a rank's share of a batch and its gradients, as [`Objective::evaluate`] does, and makes
    /// them their means over the ranks, as [`Communicator::average`] does. Nothing waits.
    ///
    /// Gradients are averaged in at most so many buckets of about the same size: each as soon as the backward pass
    /// has completed it, on a stream beside that of the pass, also in a captured step. With one bucket, and for
    /// models without a [plan](Objective::is_planned), that is after the backward pass.
    ///
    /// # Errors
    /// The errors of both functions.
    pub fn evaluate(
        &self,
        objective: &mut Objective,
        batch: &[Tensor],
        buckets: usize,
    ) -> Result<Tensor, Error> {
        if buckets < 2 || !objective.is_planned() {
            let loss = objective.evaluate(batch)?;
            self.average(objective, &loss)?;
            return Ok(loss);
        }
        let stream = self.device.cuda_stream();
        let loss = objective.evaluate_in_buckets(batch, buckets, &mut |buffers| {
            let forked = self.beside.join(&stream);
            forked.map_err(driver("cuStreamWaitEvent"))?;
            self.mean(&self.beside, buffers)
        })?;
        let joined = stream.join(&self.beside);
        joined.map_err(driver("cuStreamWaitEvent"))?;
        Ok(loss)
    }

    /// Makes buffers their means over the ranks.
    fn mean(&self, stream: &Arc<CudaStream>, buffers: &[(&View<'_>, usize)]) -> Result<(), Error> {
        self.each(stream, buffers, |(data, count, dtype)| {
            let (call, op) = ("ncclAllReduce", sys::ncclRedOp_t::ncclAvg);
            let stream = stream.cu_stream().cast();
            // SAFETY: the same holds as in `broadcast`.
            let done =
                unsafe { result::all_reduce(data, data, count, dtype, op, self.comm, stream) };
            done.map_err(|error| self.fault(call, &error))
        })
    }

    /// Calls a function for each buffer, as one group: NCCL makes one launch of it.
    ///
    /// The buffers are memory of candle, which lends it for reading. They are alive and locked, so their memory
    /// stays; work on it is launched on the stream of the device, or on one that waits for it and that it waits for,
    /// so writing to it comes after earlier work and before later work.
    fn each(
        &self,
        stream: &CudaStream,
        buffers: &[(&View<'_>, usize)],
        mut call: impl FnMut((*mut c_void, usize, sys::ncclDataType_t)) -> Result<NcclStatus, Fault>,
    ) -> Result<(), Error> {
        result::group_start().map_err(|error| self.fault("ncclGroupStart", &error))?;
        let mut done = Ok(());
        for (view, count) in buffers.iter().filter(|(_, count)| *count > 0) {
            let data = view.address(stream) as *mut c_void;
            done = call((data, *count, data_type(view.dtype())?)).map(drop);
            if done.is_err() {
                break;
            }
        }
        // A group that was begun must be ended.
        let ended = result::group_end().map_err(|error| self.fault("ncclGroupEnd", &error));
        done?;
        ended?;
        Ok(())
    }

    fn fault(&self, call: &'static str, error: &NcclError) -> Fault {
        fault(call, error, self.comm)
    }
}

impl Drop for Communicator {
    #[allow(unsafe_code, reason = "cudarc's interface of NCCL is unsafe")]
    fn drop(&mut self) {
        // Without this, work in flight would lose its communicator. An error has nobody to go to.
        let _ = self.device.cuda_stream().synchronize();
        let _ = self.beside.synchronize();
        // SAFETY: the communicator is alive, and nothing uses it after this.
        let _ = unsafe { result::comm_destroy(self.comm) };
    }
}

/// The error of a call of the driver.
fn driver(call: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| flashcliff::cuda::driver_error(call)(error).into()
}

/// The type of elements in NCCL's words.
fn data_type(dtype: Dtype) -> Result<sys::ncclDataType_t, Error> {
    Ok(match dtype {
        Dtype::F32 => sys::ncclDataType_t::ncclFloat32,
        Dtype::F64 => sys::ncclDataType_t::ncclFloat64,
        Dtype::Bf16 => sys::ncclDataType_t::ncclBfloat16,
        Dtype::F16 => sys::ncclDataType_t::ncclFloat16,
        _ => return Err(memory::misplaced("communicator")),
    })
}

/// An error of NCCL with its messages. The communicator may be null.
#[allow(unsafe_code, reason = "NCCL returns texts as pointers")]
fn fault(call: &'static str, error: &NcclError, comm: sys::ncclComm_t) -> Fault {
    let text = |text: *const c_char| match text.is_null() {
        true => String::new(),
        // SAFETY: NCCL's texts end with a zero and stay until the next call of this thread.
        false => unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned(),
    };
    // SAFETY: the function takes any code.
    let kind = text(unsafe { sys::ncclGetErrorString(error.0) });
    // SAFETY: the function takes a communicator or null.
    let last = text(unsafe { sys::ncclGetLastError(comm) });
    let reason = match last.trim() {
        "" => kind,
        last => format!("{kind}: {last}"),
    };
    Fault::Nccl { call, reason }
}
