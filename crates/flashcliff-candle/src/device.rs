//! The CPU, or a GPU.

use candle_core::Device;

use crate::Error;

/// The GPU number `ordinal`, as CUDA counts them. All calls for one GPU return the same device, whose work is done in
/// the order of one stream, whichever threads launch it.
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
/// [`Error::BuiltWithoutCuda`]; the errors of [`flashcliff::Device::cuda`]: no driver, no such GPU, or one that the
/// kernels were not built for; [`Error::CudaLibrary`] without cuBLAS or cuRAND, which candle needs.
#[cfg(feature = "cuda")]
pub fn cuda(ordinal: usize) -> Result<Device, Error> {
    use std::sync::{Mutex, PoisonError};

    use candle_core::DeviceLocation;

    /// The devices that have been given out. candle treats tensors of two devices as tensors of two GPUs, even if both
    /// devices are the same GPU.
    static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

    // This call explains why there is no such GPU, which candle does not.
    flashcliff::Device::cuda(ordinal)?;
    for library in [
        flashcliff_cuda_loader::Library::Cublas,
        flashcliff_cuda_loader::Library::CublasLt,
        flashcliff_cuda_loader::Library::Curand,
    ] {
        library.load().map_err(|tried| Error::CudaLibrary {
            library: library.name(),
            tried: tried.to_owned(),
        })?;
    }
    // The list is whole even after a panic.
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let location = DeviceLocation::Cuda { gpu_id: ordinal };
    if let Some(device) = devices.iter().find(|device| device.location() == location) {
        return Ok(device.clone());
    }
    // The device has a stream of its own: candle's default stream differs from thread to thread.
    let device = Device::new_cuda_with_stream(ordinal)?;
    devices.push(device.clone());
    Ok(device)
}

/// The GPU number `ordinal`, as CUDA counts them.
///
/// # Errors
/// [`Error::BuiltWithoutCuda`], always: the crate was built without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
pub fn cuda(_: usize) -> Result<Device, Error> {
    Err(Error::BuiltWithoutCuda)
}
