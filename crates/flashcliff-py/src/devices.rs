//! The GPUs that calls of kernels have used.

use std::sync::{Mutex, PoisonError};

use flashcliff::Error;
use flashcliff::cuda::Device;
use flashcliff::cuda::items::Target;

/// The number of a device, and the address of a stream.
pub(crate) type PyStream = (usize, usize);

/// Devices that were opened, so that no call opens one again.
#[derive(Default)]
pub(crate) struct Devices(Mutex<Vec<Device>>);

impl Devices {
    /// Calls a function with a device and a stream of Python's.
    pub(crate) fn with<R>(
        &self,
        (ordinal, stream): PyStream,
        call: impl FnOnce(Target<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let device = self.device(ordinal)?;
        call(Target {
            device: &device,
            stream: std::ptr::with_exposed_provenance_mut(stream),
        })
    }

    pub(crate) fn device(&self, ordinal: usize) -> Result<Device, Error> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lock().iter().find(|d| d.ordinal() == ordinal).cloned();
        if let Some(device) = found {
            return Ok(device);
        }
        // This does not run under the lock, because it starts CUDA. Two threads may both get here.
        let device = Device::cuda(ordinal)?;
        lock().push(device.clone());
        Ok(device)
    }
}
