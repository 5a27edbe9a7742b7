//! The GPUs that calls of kernels have used.

use std::sync::{Mutex, PoisonError};

use flashcliff::Error;
use flashcliff::cuda::Device;
use flashcliff::cuda::items::Target;
use pyo3::prelude::*;

use crate::error::caught;

/// The number of the device, and the address of the stream.
pub(crate) type PyTarget = (usize, usize);

/// Devices that were opened, so that no call opens one again.
#[derive(Default)]
pub(crate) struct Devices(Mutex<Vec<Device>>);

impl Devices {
    /// Calls a function with a device and a stream of Python's.
    pub(crate) fn on(
        &self,
        (ordinal, stream): PyTarget,
        call: impl FnOnce(Target<'_>) -> Result<(), Error>,
    ) -> PyResult<()> {
        caught(|| {
            let device = self.device(ordinal)?;
            call(Target {
                device: &device,
                stream: std::ptr::with_exposed_provenance_mut(stream),
            })
        })
    }

    fn device(&self, ordinal: usize) -> Result<Device, Error> {
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
