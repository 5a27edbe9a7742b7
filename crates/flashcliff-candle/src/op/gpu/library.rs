//! Converts candle's devices and types to devices and types of the CUDA library.

use std::sync::{Mutex, PoisonError};

use candle_core::{CudaDevice, DType};
use flashcliff::{Device, Dtype};

use crate::Error;

/// The GPUs that have been used. The plans of cuBLASLt for a GPU are kept with it.
static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

/// The GPU of a device of candle.
///
/// # Errors
/// A GPU that the kernels were not compiled for.
pub(crate) fn device(candle: &CudaDevice) -> Result<Device, Error> {
    let stream = candle.cuda_stream();
    let context = stream.context();
    // The list is whole even after a panic.
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    // All of candle's devices of one GPU share its primary context.
    let known = devices.iter().find(|device| device.context() == context);
    if let Some(device) = known {
        return Ok(device.clone());
    }
    let device = Device::from_context(context.clone())?;
    devices.push(device.clone());
    Ok(device)
}

/// The core's element type for a type of candle, if there are kernels for it.
pub(crate) fn core_dtype(candle: DType) -> Option<Dtype> {
    match candle {
        DType::F32 => Some(Dtype::F32),
        DType::F64 => Some(Dtype::F64),
        DType::BF16 => Some(Dtype::Bf16),
        DType::F16 => Some(Dtype::F16),
        _ => None,
    }
}
