//! Copies samples to tensors, and computes errors.

use candle_core::{Device, Tensor};
use flashcliff_candle::models::Model;
use flashcliff_tasks::Split;

use crate::error::Error;
use crate::interrupt;

/// The number of samples that are evaluated at once.
const CHUNK: usize = 256;

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
    for start in (0..split.len()).step_by(CHUNK) {
        if interrupt::requested() {
            return Ok(None);
        }
        let end = split.len().min(start + CHUNK);
        let (points, _) = samples(split, start..end, device)?;
        predictions.extend(model.forward(&points)?.to_vec1::<f32>()?);
    }
    Ok(Some(split.mean_squared_error(&predictions)?))
}
