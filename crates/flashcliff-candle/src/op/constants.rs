//! Indices on a device, made once, so that a captured step copies nothing from the host.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use candle_core::{Result, Tensor};

/// Indices on the device of a tensor. A name stands for the same values always.
pub(crate) fn indices(
    name: &str,
    values: impl FnOnce() -> Result<Vec<u32>>,
    like: &Tensor,
) -> Result<Tensor> {
    static MADE: Mutex<BTreeMap<String, Tensor>> = Mutex::new(BTreeMap::new());
    let device = like.device();
    let key = format!("{name}, {:?}", device.location());
    // The map is whole even after a panic.
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    match made.get(&key) {
        Some(tensor) if tensor.device().same_device(device) => Ok(tensor.clone()),
        _ => {
            let values = values()?;
            let tensor = Tensor::from_slice(&values, values.len(), device)?;
            made.insert(key, tensor.clone());
            Ok(tensor)
        }
    }
}
