//! The stream of a call.

use std::cell::OnceCell;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaContext, CudaStream};

/// A stream of a host, as the driver of CUDA has it.
pub type RawStream = CUstream;

/// A stream of cudarc, or one that a host owns.
pub(crate) struct Queue<'s> {
    raw: RawStream,
    context: &'s Arc<CudaContext>,
    stream: Option<&'s CudaStream>,
    wrapped: OnceCell<Arc<CudaStream>>,
}

impl<'s> Queue<'s> {
    pub(super) fn of(stream: &'s CudaStream) -> Self {
        Self {
            raw: stream.cu_stream(),
            context: stream.context(),
            stream: Some(stream),
            wrapped: OnceCell::new(),
        }
    }

    /// # Safety
    /// The stream belongs to the context and lives as long as the queue.
    pub(crate) unsafe fn from_raw(raw: RawStream, context: &'s Arc<CudaContext>) -> Self {
        Self {
            raw,
            context,
            stream: None,
            wrapped: OnceCell::new(),
        }
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    /// The stream as an object of cudarc, which orders uses of its memory by it.
    pub(super) fn stream(&self) -> &CudaStream {
        match self.stream {
            Some(stream) => stream,
            // SAFETY: `from_raw` demands that the stream belongs to the context and outlives the queue; the wrapper is
            // dropped with the queue.
            None => self
                .wrapped
                .get_or_init(|| unsafe { self.context.wrap_borrowed_stream(self.raw) }),
        }
    }
}
