//! Copies samples to tensors, and computes errors.

use candle_core::{Device, Tensor, WithDType};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_tasks::Split;

use crate::error::Error;
use crate::interrupt;

/// The number of samples that are evaluated at once on the CPU, and on a GPU, which is waited for after each chunk.
const CHUNK: usize = 256;
const CHUNK_ON_GPU: usize = 4096;
/// The factor by which chunks of a transformer are smaller, because of its activations.
const TRANSFORMER: usize = 4;
/// The factor by which chunks of bodies in five dimensions are smaller, as their multivectors are
/// four times as large.
const FIVE_DIMENSIONS: usize = 4;
/// The factor by which chunks of a network on simplicial complexes are smaller.
const SIMPLICES: usize = 16;
/// The factor by which chunks of a network of energies and forces are smaller, which keeps values
/// of both for gradients.
const FORCES: usize = 16;
/// The factor by which chunks of a network on all pairs of points are smaller.
const PAIRS: usize = 8;

/// Points `[len, points, dim]` and targets of some samples, `[len]`, or `[len, targets]` where there are several, on a device.
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

/// Predictions for points, row-major, so many samples at once, or the usual number. `None` if Ctrl-C came before the end.
pub(crate) fn predictions<T: WithDType>(
    model: &Model,
    points: &[T],
    batch: Option<usize>,
    device: &Device,
) -> Result<Option<Vec<T>>, Error> {
    let network = model.architecture();
    let (count, dim) = (network.points(), network.dim());
    let width = count * dim;
    let batch = batch.unwrap_or_else(|| usual_batch(network, device));
    let mut predictions = Vec::with_capacity(points.len() / width * network.targets());
    for part in points.chunks(batch.saturating_mul(width)) {
        if interrupt::requested() {
            return Ok(None);
        }
        let points = Tensor::from_slice(part, (part.len() / width, count, dim), device)?;
        let made = model.forward(&points)?.flatten_all()?;
        predictions.extend(made.to_vec1::<T>()?);
    }
    Ok(Some(predictions))
}

/// The mean squared error of the stored targets over a split, of [`predictions`]. `None` if Ctrl-C came before the end.
pub(super) fn mean_squared_error(
    model: &Model,
    split: &Split,
    batch: Option<usize>,
    device: &Device,
) -> Result<Option<f64>, Error> {
    let predictions = predictions(model, &split.inputs, batch, device)?;
    let error = predictions.map(|made| split.mean_squared_error(&made));
    Ok(error.transpose()?)
}

fn usual_batch(network: Architecture, device: &Device) -> usize {
    let chunk = if device.is_cpu() { CHUNK } else { CHUNK_ON_GPU };
    match network {
        Architecture::Gravity => chunk / TRANSFORMER,
        Architecture::Bodies5d => chunk / FIVE_DIMENSIONS,
        Architecture::SimplicialHulls => chunk / SIMPLICES,
        Architecture::Forces => chunk / FORCES,
        Architecture::AffineHulls => chunk / PAIRS,
        _ => chunk,
    }
}
