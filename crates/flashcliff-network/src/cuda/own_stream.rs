//! Streams that cudarc does not count: it would begin to order the uses of memory itself, in captures of the host too.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::sys::CUstreamCaptureStatus;
use flashcliff::cuda::cudarc::driver::{CudaContext, CudaStream, result};
use flashcliff::cuda::driver_error;

use crate::Error;

/// A stream of a context, which lives as long as this value.
#[derive(Debug)]
pub(super) struct OwnStream(Arc<CudaStream>);

impl OwnStream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, Error> {
        context
            .bind_to_thread()
            .map_err(driver_error("cuCtxSetCurrent"))?;
        let made = result::stream::create(result::stream::StreamKind::NonBlocking);
        let made = made.map_err(driver_error("cuStreamCreate"))?;
        // SAFETY: the stream is of the context, and lives until this value is dropped, after all that is launched on it.
        Ok(Self(unsafe { context.wrap_borrowed_stream(made) }))
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.0
    }

    /// Whether the stream takes part in no capture that goes on.
    pub(super) fn is_free(&self) -> bool {
        matches!(
            self.0.capture_status(),
            Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
        )
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // A capture of the host would end with an error.
        if self.is_free() {
            // SAFETY: nothing uses the stream any more. A stream that cannot be destroyed stays: nothing else can be done.
            let _ = unsafe { result::stream::destroy(self.0.cu_stream()) };
        }
    }
}
