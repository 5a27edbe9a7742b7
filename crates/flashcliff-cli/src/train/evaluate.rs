//! Copies samples to tensors, and computes errors.

use candle_core::{Device, Tensor};
use flashcliff_candle::models::Model;

use crate::error::Error;
use crate::interrupt;
use crate::tasks::{Dataset, Split};

/// The number of samples that are evaluated at once.
const CHUNK: usize = 256;

/// Points `[len, points, dim]` and targets `[len]` of some samples, on a device.
///
/// # Errors
/// The errors of candle.
pub(super) fn samples(
    data: &Dataset,
    split: &Split,
    indices: impl Iterator<Item = usize>,
    device: &Device,
) -> Result<(Tensor, Tensor), Error> {
    let width = data.points * data.dim;
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for index in indices {
        inputs.extend_from_slice(&split.inputs[index * width..(index + 1) * width]);
        targets.push(split.targets[index]);
    }
    let len = targets.len();
    let inputs = Tensor::from_vec(inputs, (len, data.points, data.dim), device)?;
    Ok((inputs, Tensor::from_vec(targets, len, device)?))
}

/// The mean squared error of the stored targets over a split. The sum is taken in f64. `None` if Ctrl-C came before the end.
///
/// # Errors
/// The errors of candle.
pub(super) fn mean_squared_error(
    model: &Model,
    data: &Dataset,
    split: &Split,
    device: &Device,
) -> Result<Option<f64>, Error> {
    let mut sum = 0.0;
    for start in (0..split.len).step_by(CHUNK) {
        if interrupt::requested() {
            return Ok(None);
        }
        let end = split.len.min(start + CHUNK);
        let (points, _) = samples(data, split, start..end, device)?;
        let predictions: Vec<f32> = model.forward(&points)?.to_vec1()?;
        for (prediction, target) in predictions.iter().zip(&split.targets[start..end]) {
            sum += (f64::from(*prediction) - f64::from(*target)).powi(2);
        }
    }
    Ok(Some(sum / split.len as f64))
}
