//! Copies samples to tensors, and computes errors.

use candle_core::{Device, Tensor};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_tasks::Split;

use crate::error::Error;
use crate::interrupt;

/// The number of samples that are evaluated at once on the CPU, and on a GPU, which is waited for after each chunk.
const CHUNK: usize = 256;
const CHUNK_ON_GPU: usize = 4096;
/// The factor by which chunks of a transformer are smaller, because of its activations.
const TRANSFORMER: usize = 4;

/// Points `[len, points, dim]` and targets of some samples, `[len]`, or `[len, targets]` where there are several, on a device.
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
        let of_sample = index * split.target_len..(index + 1) * split.target_len;
        targets.extend_from_slice(&split.targets[of_sample]);
    }
    let len = targets.len() / split.target_len;
    let shape = [len, split.target_len];
    let shape = if split.target_len == 1 {
        &shape[..1]
    } else {
        &shape
    };
    let inputs = Tensor::from_vec(inputs, (len, points, dim), device)?;
    Ok((inputs, Tensor::from_vec(targets, shape, device)?))
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
    let mut predictions = Vec::with_capacity(split.targets.len());
    let chunk = if device.is_cpu() { CHUNK } else { CHUNK_ON_GPU };
    let chunk = match model.architecture() {
        Architecture::Gravity => chunk / TRANSFORMER,
        _ => chunk,
    };
    for start in (0..split.len()).step_by(chunk) {
        if interrupt::requested() {
            return Ok(None);
        }
        let end = split.len().min(start + chunk);
        let (points, _) = samples(split, start..end, device)?;
        let made = model.forward(&points)?.flatten_all()?;
        predictions.extend(made.to_vec1::<f32>()?);
    }
    Ok(Some(split.mean_squared_error(&predictions)?))
}
