//! The CPU, or a GPU.

use candle_core::Device;

use crate::Error;

/// A part of the work that the first call for a GPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opening {
    /// Loading the driver, and making the context of the GPU. Meanwhile another thread loads the libraries.
    Driver,
    /// Waiting for that thread: cuBLAS, cuBLASLt and cuRAND.
    Libraries,
    /// Making the stream of the device and the handles of the libraries.
    Handles,
}

/// The GPU number `ordinal`, as CUDA counts them. All calls for one GPU return the same device, whose work is done in
/// the order of one stream, whichever threads launch it.
///
/// cudarc does not track the memory of the device by events, so that steps can be [captured](crate::capture). Who takes the memory of a
/// tensor and uses it on another stream must order both streams. The default memory pool of the GPU keeps what is freed.
///
/// ```
/// use flashcliff_candle::device;
///
/// let device = match device::cuda(0) {
///     Ok(device) => device,
///     Err(error) => {
///         eprintln!("{error}; using the CPU");
///         candle_core::Device::Cpu
///     }
/// };
/// ```
///
/// # Errors
/// [`Error::BuiltWithoutCuda`]; the errors of `flashcliff::Device::cuda`: no driver, no such GPU, or one that the
/// kernels were not built for; [`Error::CudaLibrary`] without cuBLAS or cuRAND, which candle needs.
pub fn cuda(ordinal: usize) -> Result<Device, Error> {
    cuda_observed(ordinal, &mut |_| {})
}

/// Does the same as [`cuda`], and calls a function at the begin of each part of the work, in their order. A device
/// that is there already has no parts.
///
/// # Errors
/// The errors of [`cuda`].
#[cfg(feature = "cuda")]
pub fn cuda_observed(ordinal: usize, observe: &mut dyn FnMut(Opening)) -> Result<Device, Error> {
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    use candle_core::DeviceLocation;
    use flashcliff_cuda_loader::Library;

    /// The libraries that a device needs.
    const LIBRARIES: [Library; 3] = [Library::Cublas, Library::CublasLt, Library::Curand];
    /// The devices that have been given out. candle treats tensors of two devices as tensors of two GPUs, even if both
    /// devices are the same GPU.
    static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

    // The list is whole even after a panic.
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let location = DeviceLocation::Cuda { gpu_id: ordinal };
    if let Some(device) = devices.iter().find(|device| device.location() == location) {
        return Ok(device.clone());
    }
    observe(Opening::Driver);
    thread::scope(|scope| {
        // Without a driver there is nothing to load them for. Results are kept, errors too.
        if Library::Cuda.load().is_ok() {
            scope.spawn(|| LIBRARIES.map(|library| library.load().is_ok()));
        }
        // This call explains why there is no such GPU, which candle does not.
        flashcliff::Device::cuda(ordinal)?;
        observe(Opening::Libraries);
        for library in LIBRARIES {
            library.load().map_err(|tried| Error::CudaLibrary {
                library: library.name(),
                tried: tried.to_owned(),
            })?;
        }
        Ok::<(), Error>(())
    })?;
    observe(Opening::Handles);
    // The device has its own stream: candle's default stream differs from thread to thread.
    let device = Device::new_cuda_with_stream(ordinal)?;
    if let Device::Cuda(device) = &device {
        untracked(device)?;
    }
    devices.push(device.clone());
    Ok(device)
}

/// Prepares a new device for captures and cheap launches: cudarc records no events for its memory, and freed memory stays in its pool.
#[cfg(feature = "cuda")]
fn untracked(device: &candle_core::CudaDevice) -> Result<(), Error> {
    #[allow(
        unsafe_code,
        reason = "an event of before a capture would spoil it, and work in order needs none"
    )]
    // SAFETY: the context object belongs to this device alone, and no memory was allocated with it yet. All work of
    // candle and of this crate on memory of the device is launched on its one stream, or on streams that wait for it
    // and that it waits for: branches of captured steps, averages of ranks. So every use comes after those before it.
    unsafe {
        device.disable_event_tracking();
    }
    Ok(crate::op::gpu::library::device(device)?.keep_pool()?)
}

/// Does the same as [`cuda`].
///
/// # Errors
/// [`Error::BuiltWithoutCuda`], always: the crate was built without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
pub fn cuda_observed(_: usize, _: &mut dyn FnMut(Opening)) -> Result<Device, Error> {
    Err(Error::BuiltWithoutCuda)
}
