//! Tensors of constants on a device, made once, so that a captured step copies nothing from the host.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Result, Tensor};

/// Numbers in the type of a tensor, on its device. A name stands for the same values always.
pub(super) fn constant(
    name: &str,
    values: impl FnOnce() -> Result<Vec<f64>>,
    like: &Tensor,
) -> Result<Tensor> {
    let make = || {
        let values = values()?;
        Tensor::from_slice(&values, values.len(), like.device())?.to_dtype(like.dtype())
    };
    made_once(name, like.dtype(), like, make)
}

/// Indices on the device of a tensor, likewise.
pub(crate) fn indices(
    name: &str,
    values: impl FnOnce() -> Result<Vec<u32>>,
    like: &Tensor,
) -> Result<Tensor> {
    let make = || {
        let values = values()?;
        Tensor::from_slice(&values, values.len(), like.device())
    };
    made_once(name, DType::U32, like, make)
}

fn made_once(
    name: &str,
    dtype: DType,
    like: &Tensor,
    make: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    static MADE: Mutex<BTreeMap<String, Tensor>> = Mutex::new(BTreeMap::new());
    let device = like.device();
    let key = format!("{name}, {:?}, {dtype:?}", device.location());
    // The map is whole even after a panic.
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    match made.get(&key) {
        Some(tensor) if tensor.device().same_device(device) => Ok(tensor.clone()),
        _ => {
            let tensor = make()?;
            made.insert(key, tensor.clone());
            Ok(tensor)
        }
    }
}
