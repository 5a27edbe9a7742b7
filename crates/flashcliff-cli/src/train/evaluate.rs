//! Copies samples to tensors, and computes errors.

use candle_core::{Device, Tensor};
use flashcliff_candle::models::Model;
use flashcliff_tasks::Split;

use crate::error::Error;
use crate::interrupt;

/// The number of samples that are evaluated at once on the CPU, and on a GPU, which is waited for after each chunk.
const CHUNK: usize = 256;
const CHUNK_ON_GPU: usize = 4096;

/// Points `[len, points, dim]` and targets `[len]` of some samples, on a device.
///
/// # Errors
/// The errors of candle.
pub(super) fn samples(
    split: &Split,
    indices: impl Iterator<Item = usize>,
    device: &Device,
) -> Result<(Tensor, Tensor), Error> {
    let [_, points, dim] = split.shape;
    let width = points * dim;
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for index in indices {
        inputs.extend_from_slice(&split.inputs[index * width..(index + 1) * width]);
        targets.push(split.targets[index]);
    }
    let len = targets.len();
    let inputs = Tensor::from_vec(inputs, (len, points, dim), device)?;
    Ok((inputs, Tensor::from_vec(targets, len, device)?))
}

/// The mean squared error of the stored targets over a split. `None` if Ctrl-C came before the end.
///
/// # Errors
/// The errors of candle.
pub(super) fn mean_squared_error(
    model: &Model,
    split: &Split,
    device: &Device,
) -> Result<Option<f64>, Error> {
    let mut predictions = Vec::with_capacity(split.len());
    let chunk = if device.is_cpu() { CHUNK } else { CHUNK_ON_GPU };
    for start in (0..split.len()).step_by(chunk) {
        if interrupt::requested() {
            return Ok(None);
        }
        let end = split.len().min(start + chunk);
        let (points, _) = samples(split, start..end, device)?;
        predictions.extend(model.forward(&points)?.to_vec1::<f32>()?);
    }
    Ok(Some(split.mean_squared_error(&predictions)?))
}
