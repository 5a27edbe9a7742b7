//! Moments: of the host, and on a GPU also of its stream.

#[cfg(feature = "cuda")]
use std::cell::RefCell;
#[cfg(feature = "cuda")]
use std::sync::Arc;
use std::time::Instant;

use candle_core::Device;
#[cfg(feature = "cuda")]
use flashcliff::cuda::cudarc::driver::sys::CUevent_flags;
#[cfg(feature = "cuda")]
use flashcliff::cuda::cudarc::driver::{CudaEvent, CudaStream};
#[cfg(feature = "cuda")]
use flashcliff::cuda::driver_error;

use crate::Error;

/// The clock of a device.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    #[cfg(feature = "cuda")]
    stream: Option<Arc<CudaStream>>,
    /// Events that were made before the time began. Making one takes the host as long as recording it.
    #[cfg(feature = "cuda")]
    spare: RefCell<Vec<CudaEvent>>,
}

/// A moment of a [`Clock`].
#[derive(Debug)]
pub(super) struct Moment {
    host: f64,
    #[cfg(feature = "cuda")]
    event: Option<CudaEvent>,
}

/// The seconds of a moment since the first one, on the device and on the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) device: f64,
    pub(super) host: f64,
}

impl Time {
    pub(super) const ZERO: Self = Self {
        device: 0.0,
        host: 0.0,
    };

    /// Both parts changed alike.
    pub(super) fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self {
            device: of(self.device),
            host: of(self.host),
        }
    }

    /// The sum of two times.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            device: self.device + other.device,
            host: self.host + other.host,
        }
    }

    /// The time from an earlier one on.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            device: self.device - earlier.device,
            host: self.host - earlier.host,
        }
    }
}

impl Clock {
    /// A clock that starts now, for so many moments; more of them take longer. It waits for what a GPU has to do.
    pub(super) fn new(device: &Device, moments: usize) -> Result<Self, Error> {
        #[cfg(feature = "cuda")]
        let stream = match device {
            Device::Cuda(device) => {
                let stream = device.cuda_stream();
                let done = stream.synchronize();
                done.map_err(driver_error("cuStreamSynchronize"))?;
                Some(stream)
            }
            _ => None,
        };
        let _ = (device, moments);
        #[cfg(feature = "cuda")]
        let spare = match &stream {
            Some(stream) => events(stream, moments)?,
            None => Vec::new(),
        };
        Ok(Self {
            #[cfg(feature = "cuda")]
            spare: RefCell::new(spare),
            start: Instant::now(),
            #[cfg(feature = "cuda")]
            stream,
        })
    }

    /// The moment now. On a GPU it comes when the work that was launched before is done.
    pub(super) fn now(&self) -> Result<Moment, Error> {
        #[cfg(feature = "cuda")]
        let event = match &self.stream {
            None => None,
            Some(stream) => {
                let event = match self.spare.borrow_mut().pop() {
                    Some(event) => event,
                    None => event(stream)?,
                };
                event
                    .record(stream)
                    .map_err(driver_error("cuEventRecord"))?;
                Some(event)
            }
        };
        Ok(Moment {
            host: self.start.elapsed().as_secs_f64(),
            #[cfg(feature = "cuda")]
            event,
        })
    }

    /// The times of moments, since the first of them. It waits for a GPU.
    pub(super) fn times(&self, moments: &[&Moment]) -> Result<Vec<Time>, Error> {
        #[cfg(feature = "cuda")]
        if let Some(stream) = &self.stream {
            let done = stream.synchronize();
            done.map_err(driver_error("cuStreamSynchronize"))?;
        }
        let Some(first) = moments.first() else {
            return Ok(Vec::new());
        };
        let times = moments.iter().map(|moment| {
            let host = moment.host - first.host;
            Ok(Time {
                device: moment.on_device(first)?.unwrap_or(host),
                host,
            })
        });
        times.collect()
    }
}

/// Events that have not been recorded.
#[cfg(feature = "cuda")]
fn events(stream: &CudaStream, count: usize) -> Result<Vec<CudaEvent>, Error> {
    (0..count).map(|_| event(stream)).collect()
}

#[cfg(feature = "cuda")]
fn event(stream: &CudaStream) -> Result<CudaEvent, Error> {
    let event = stream
        .context()
        .new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
    Ok(event.map_err(driver_error("cuEventCreate"))?)
}

impl Moment {
    /// The seconds since an earlier moment on the GPU, if there is one.
    #[cfg(feature = "cuda")]
    fn on_device(&self, first: &Self) -> Result<Option<f64>, Error> {
        let (Some(first), Some(own)) = (&first.event, &self.event) else {
            return Ok(None);
        };
        let milliseconds = first.elapsed_ms(own);
        let milliseconds = milliseconds.map_err(driver_error("cuEventElapsedTime"))?;
        Ok(Some(f64::from(milliseconds) * 1e-3))
    }

    #[cfg(not(feature = "cuda"))]
    fn on_device(&self, _: &Self) -> Result<Option<f64>, Error> {
        Ok(None)
    }
}
