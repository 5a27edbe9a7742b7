//! Times of the GPU by events, and the addition that is the floor.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::sys::CUevent_flags;
use flashcliff::cuda::cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DevicePtr};
use flashcliff::cuda::driver_error;

use crate::Error;

/// A stream on which runs are timed.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) stream: Arc<CudaStream>,
    /// A buffer that is larger than the second-level cache.
    flush: CudaSlice<u8>,
}

impl Clock {
    pub(super) fn new(stream: Arc<CudaStream>, l2_bytes: usize) -> Result<Self, Error> {
        let bytes = (4 * l2_bytes).max(256 << 20);
        let flush = stream
            .alloc_zeros(bytes)
            .map_err(driver_error("cuMemAlloc"))?;
        Ok(Self { stream, flush })
    }

    /// The seconds of a run on the GPU. The second-level cache is overwritten first, which takes longer than launching the run.
    pub(super) fn seconds(
        &mut self,
        run: impl FnOnce(&Arc<CudaStream>) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        self.seconds_of(run)
    }

    /// Times work like the function above, for a run with its own type of errors.
    pub(super) fn seconds_of<E: From<Error>>(
        &mut self,
        run: impl FnOnce(&Arc<CudaStream>) -> Result<(), E>,
    ) -> Result<f64, E> {
        self.flush()?;
        let start = self.event()?;
        run(&self.stream)?;
        let end = self.event()?;
        let milliseconds = start.elapsed_ms(&end);
        let milliseconds = milliseconds.map_err(driver_error("cuEventElapsedTime"));
        Ok(f64::from(milliseconds.map_err(Error::from)?) * 1e-3)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let set = self.stream.memset_zeros(&mut self.flush);
        Ok(set.map_err(driver_error("cuMemsetD8Async"))?)
    }

    pub(super) fn wait(&self) -> Result<(), Error> {
        let done = self.stream.synchronize();
        Ok(done.map_err(driver_error("cuStreamSynchronize"))?)
    }

    fn event(&self) -> Result<CudaEvent, Error> {
        let event = self
            .stream
            .record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        Ok(event.map_err(driver_error("cuEventRecord"))?)
    }
}

/// `o = x + y` in f32: two tensors read, one written.
#[derive(Debug)]
pub(super) struct Addition {
    tensors: [CudaSlice<f32>; 3],
    len: usize,
}

impl Addition {
    /// An addition that moves so many bytes, or a few more.
    pub(super) fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, Error> {
        let len = bytes.div_ceil(12).max(1);
        let tensor = || stream.alloc_zeros(len).map_err(driver_error("cuMemAlloc"));
        Ok(Self {
            tensors: [tensor()?, tensor()?, tensor()?],
            len,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        12 * self.len
    }

    #[allow(unsafe_code, reason = "the addition is a function in C")]
    pub(super) fn run(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        let pointers = self.tensors.each_ref().map(|tensor| {
            let (address, _guard) = tensor.device_ptr(stream);
            std::ptr::without_provenance_mut::<f32>(address as usize)
        });
        let [x, y, o] = pointers;
        // SAFETY: the tensors have `len` elements each, and all work on them is on this stream.
        let code = unsafe {
            flashcliff_sys::fc_add_f32(x, y, o, self.len as i64, stream.cu_stream().cast())
        };
        match code {
            0 => Ok(()),
            code => Err(Error::Kernel {
                call: "fc_add_f32",
                code,
            }),
        }
    }

    /// Copies one tensor to another.
    pub(super) fn copy(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        let [x, y, _] = &mut self.tensors;
        let copied = stream.memcpy_dtod(x, y);
        Ok(copied.map_err(driver_error("cuMemcpyDtoDAsync"))?)
    }
}
