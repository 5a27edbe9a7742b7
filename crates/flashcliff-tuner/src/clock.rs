//! Times work on a GPU by events, with cold caches.

use std::sync::Arc;

use flashcliff::Error;
use flashcliff::cuda::cudarc::driver::sys::{CUdevice_attribute, CUevent_flags};
use flashcliff::cuda::cudarc::driver::{CudaEvent, CudaSlice, CudaStream};
use flashcliff::cuda::driver_error;

use crate::scratch::scratch;

/// How many times the second-level cache is overwritten between runs.
const CACHES: usize = 4;
/// The smallest number of bytes that is written between runs. It gives the host time to queue a pass meanwhile, so that
/// launches are not timed.
const LEAST_BYTES: usize = 512 << 20;

/// A clock of one stream.
pub(crate) struct Clock {
    stream: Arc<CudaStream>,
    flushed: CudaSlice<u8>,
    events: [CudaEvent; 2],
}

impl Clock {
    pub(crate) fn new(stream: &Arc<CudaStream>) -> Result<Self, Error> {
        let context = stream.context();
        let cache = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
        let cache = cache.map_err(driver_error("cuDeviceGetAttribute"))?;
        let bytes = usize::try_from(cache).unwrap_or(0) * CACHES;
        let event = || {
            let event = context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(driver_error("cuEventCreate"))
        };
        Ok(Self {
            stream: stream.clone(),
            flushed: scratch(stream, bytes.max(LEAST_BYTES))?,
            events: [event()?, event()?],
        })
    }

    /// The seconds that some launched work takes, after a flush of the caches.
    pub(crate) fn time(&mut self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let cleared = self.stream.memset_zeros(&mut self.flushed);
        cleared.map_err(driver_error("cuMemsetD8Async"))?;
        let record = |event: &CudaEvent| {
            let recorded = event.record(&self.stream);
            recorded.map_err(driver_error("cuEventRecord"))
        };
        let [start, end] = &self.events;
        record(start)?;
        work()?;
        record(end)?;
        let elapsed = start.elapsed_ms(end);
        let elapsed = elapsed.map_err(driver_error("cuEventElapsedTime"))?;
        Ok(f64::from(elapsed) * 1e-3)
    }
}
