//! Errors of allocations that a GPU refuses, with numbers.
//!
//! Nothing asks for free memory before a call: that takes the host longer than a launch, and memory that another process takes meanwhile
//! would make the answer wrong. So an allocation is tried. If the GPU refuses it, [`refused`] says what was asked for and what is
//! free, and [`Operator::explained`] says it of the whole call, with the largest batch that fits.

use std::sync::Arc;

use cudarc::driver::sys::{CUmemPool_attribute, CUresult, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::device::Device;
use super::dtype::Dtypes;
use super::operator::Operator;
use super::{fault, pool};
use crate::operator::footprint::{Counted, Footprint};
use crate::operator::{Dims, Pass};
use crate::{Error, memory};

/// The name of allocations in errors.
const ALLOCATION: &str = "allocating device memory";

impl Device {
    /// The bytes that the device can give now: those that are free, and those that its pool holds and nobody uses.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn available_memory(&self) -> Result<u64, Error> {
        available(self.context())
    }
}

fn available(context: &CudaContext) -> Result<u64, Error> {
    let (free, _) = context
        .mem_get_info()
        .map_err(fault::driver("cuMemGetInfo"))?;
    let pool = pool::default(context)?;
    let reserved = pool::bytes(
        pool,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    )?;
    let used = pool::bytes(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    Ok(free as u64 + reserved.saturating_sub(used))
}

/// The error of an allocation of so many bytes on a stream that failed, for `map_err`: [`Error::OutOfMemory`] if there is no room,
/// [`Error::Cuda`] otherwise.
pub fn refused(stream: &Arc<CudaStream>, bytes: usize) -> impl Fn(DriverError) -> Error {
    let context = stream.context().clone();
    move |error| match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => memory::no_room(
            ALLOCATION.to_owned(),
            bytes as u128,
            available(&context).ok().map(u128::from),
            "make the batch smaller".to_owned(),
        ),
        _ => fault::driver(ALLOCATION)(error),
    }
}

/// A call whose memory is counted.
#[derive(Clone, Copy, Debug)]
pub struct SizedCall<'a> {
    /// The sizes.
    pub dims: &'a Dims,
    /// The element types.
    pub dtypes: Dtypes,
    /// The pass.
    pub pass: Pass,
    /// The gradients that a backward pass makes, an item for each input; all if absent.
    pub gradients: Option<&'a [bool]>,
}

impl Operator {
    /// The bytes of a pass on this GPU, with all gradients, for sizes however large.
    pub fn footprint(&self, dims: &Dims, dtypes: Dtypes, pass: Pass) -> Footprint {
        self.count(&SizedCall {
            dims,
            dtypes,
            pass,
            gradients: None,
        })
    }

    /// The bytes of a pass. A workspace that no kernel has counts as 0.
    fn count(&self, call: &SizedCall<'_>) -> Footprint {
        let SizedCall {
            dims, dtypes, pass, ..
        } = *call;
        let counted = Counted {
            pass,
            wanted: call.gradients,
            lanes: dtypes.lanes.bytes(),
            parameters: dtypes.params.bytes(),
        };
        let saved = || self.saved_len(dims, dtypes) * dtypes.arithmetic().bytes();
        let workspace = || self.workspace_bytes(dims, pass, dtypes).unwrap_or(0);
        self.operator().count(dims, counted, saved, workspace)
    }

    /// The error of a call that found no memory: of the whole call, with the bytes of its parts, the bytes that are
    /// available and the largest batch that fits. All that the call has allocated must be freed on `stream` before.
    /// Other errors stay as they are.
    ///
    /// It waits for the stream, unless the stream is captured: memory comes back to a pool in the order of a stream.
    pub fn explained(&self, error: Error, stream: &Arc<CudaStream>, call: &SizedCall<'_>) -> Error {
        if !matches!(error, Error::OutOfMemory { .. }) {
            return error;
        }
        if let Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE) = stream.capture_status() {
            // A failure of earlier work shows itself at the next call.
            let _ = stream.synchronize();
        }
        let available = self.device().available_memory().ok().map(u128::from);
        self.no_room(call, available)
    }

    /// The error of a call whose memory was refused while so many bytes were available, if that is known.
    pub fn no_room(&self, call: &SizedCall<'_>, available: Option<u128>) -> Error {
        let footprint = |dims: &Dims| self.count(&SizedCall { dims, ..*call });
        self.operator().no_room(
            call.dims,
            call.dtypes.lanes,
            call.pass,
            available,
            footprint,
        )
    }
}
