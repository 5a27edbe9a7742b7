//! The CPU, or a GPU.

use candle_core::Device;

use crate::Error;

/// The GPU number `ordinal`, as CUDA counts them. All calls for one GPU give the same device, whose work
/// is done in the order of one stream, whichever threads launch it.
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
/// [`Error::BuiltWithoutCuda`]; what [`flashcliff::Device::cuda`] says: no driver, no such GPU, or one that
/// the kernels were not built for; [`Error::CudaLibrary`] without cuBLAS or cuRAND, which candle needs.
#[cfg(feature = "cuda")]
pub fn cuda(ordinal: usize) -> Result<Device, Error> {
    use std::sync::{Mutex, PoisonError};

    use candle_core::DeviceLocation;

    /// The devices that have been given out. candle takes tensors of two devices for tensors of two
    /// GPUs, also if both are the same one.
    static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

    // Says in full why there is no such GPU, which candle does not.
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
    // A panic cannot leave the list half changed.
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let location = DeviceLocation::Cuda { gpu_id: ordinal };
    if let Some(device) = devices.iter().find(|device| device.location() == location) {
        return Ok(device.clone());
    }
    // With a stream of its own: the default one of candle is another for each thread.
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
