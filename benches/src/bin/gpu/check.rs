//! Compares both passes on the GPU with the CPU in `f64`, on some rows.
//!
//! The gradient of the output is zero in all other rows. So the gradients of the weights come from the compared rows
//! alone, and the gradients of the other rows are zero.

use std::sync::Arc;

use flashcliff::cuda::Array;
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::{Dim, Dims, Dtype, Tensor};
use flashcliff_floor::values;

use crate::case::{Case, download, upload};
use crate::error::Error;

/// The allowed error, relative to the largest element of a tensor.
const TOLERANCE: f64 = 128.0 / (1 << 24) as f64;
/// The allowed error if operands of matrix products are rounded to 11 bits: five times the largest error in a model of
/// that rounding.
const TF32: f64 = 1.0 / 512.0;
/// The further error from rounding an element to 8 bits.
const BF16: f64 = 1.0 / 256.0;
/// The largest number of rows that are compared.
const ROWS: usize = 16;

/// Runs both passes once and compares them. Returns the largest difference, relative to the largest element.
pub(crate) fn check(case: &mut Case, stream: &Arc<CudaStream>) -> Result<f64, Error> {
    let Dims {
        batch, in_channels, ..
    } = case.dims;
    let rows = Rows {
        list: (0..ROWS.min(batch))
            .map(|i| i * (batch - 1) / (ROWS.min(batch) - 1).max(1))
            .collect(),
        batch,
        channels: in_channels,
    };
    let shape = case.op.output_shape(&case.dims);
    let mut masked = values(shape.iter().product(), 5);
    rows.clear_others(&mut masked);
    let full = std::mem::replace(
        &mut case.grad_output,
        upload(stream, case.dtypes.lanes, &masked, &shape)?,
    );
    case.forward(stream)?;
    case.backward(stream)?;

    let sample = Dims {
        batch: rows.list.len(),
        ..case.dims
    };
    let has_rows: Vec<bool> = case.op.inputs().iter().map(has_batch).collect();
    let pick = |array: &Array, has_rows: bool| -> Result<Vec<f64>, Error> {
        let values = download(stream, array)?;
        let values = if has_rows { rows.of(&values) } else { values };
        Ok(values.into_iter().map(f64::from).collect())
    };
    let mut inputs = Vec::new();
    for ((input, has_rows), spec) in case.inputs.iter().zip(&has_rows).zip(case.op.inputs()) {
        inputs.push((pick(input, *has_rows)?, spec.shape(&sample)));
    }
    let tensors = inputs
        .iter()
        .map(|(values, shape)| Tensor::new(values, shape));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let evaluation = case.op.evaluate::<f64>(&tensors)?;
    let grad_output = pick(&case.grad_output, true)?;
    let grad_output = Tensor::new(&grad_output, &evaluation.output_shape)?;
    let grads = case.op.gradients(&tensors, &evaluation, grad_output)?;

    let mut worst = 0.0_f64;
    let all = [(&case.output, &evaluation.output, "o".to_owned(), true)];
    let names = case.op.inputs().iter();
    let names = names.map(|spec| format!("grad_{}", spec.name));
    let of_inputs = case.grads.iter().zip(&grads).zip(names).zip(&has_rows);
    let of_inputs = of_inputs.map(|(((got, want), name), &rows)| (got, want, name, rows));
    for (got, want, name, has_rows) in all.into_iter().chain(of_inputs) {
        let got = download(stream, got)?;
        if let Some(element) = got.iter().position(|value| !value.is_finite()) {
            return Err(Error::Wrong {
                case: case.name.clone(),
                tensor: name,
                element,
                expected: 0.0,
                allowed: f64::MAX,
                got: f64::from(got[element]),
            });
        }
        let got = if has_rows { rows.of(&got) } else { got };
        worst = worst.max(compare(case, &name, want, &got)?);
    }
    case.grad_output = full;
    Ok(worst)
}

fn has_batch(spec: &flashcliff::TensorSpec) -> bool {
    spec.dims.contains(&Dim::Batch)
}

fn compare(case: &Case, tensor: &str, want: &[f64], got: &[f32]) -> Result<f64, Error> {
    if want.len() != got.len() {
        return Err(Error::Length {
            case: case.name.clone(),
            tensor: tensor.to_owned(),
            expected: want.len(),
            got: got.len(),
        });
    }
    let tolerance = match case.which.multiplies_matrices() {
        false => TOLERANCE,
        true => TF32,
    };
    let scale = want.iter().fold(0.0_f64, |scale, v| scale.max(v.abs()));
    let mut worst = 0.0_f64;
    for (element, (&expected, &got)) in want.iter().zip(got).enumerate() {
        let got = f64::from(got);
        let off = (got - expected).abs();
        let rounding = match case.dtypes.lanes {
            Dtype::Bf16 => BF16 * expected.abs(),
            _ => 0.0,
        };
        let allowed = tolerance * scale + rounding;
        // The comparison also fails for NaN.
        if off <= allowed && scale > 0.0 {
            worst = worst.max(off / scale);
            continue;
        }
        return Err(Error::Wrong {
            case: case.name.clone(),
            tensor: tensor.to_owned(),
            element,
            expected,
            allowed,
            got,
        });
    }
    Ok(worst)
}

/// Some rows of `[components, batch, channels]` tensors.
struct Rows {
    list: Vec<usize>,
    batch: usize,
    channels: usize,
}

impl Rows {
    /// A smaller tensor of these rows.
    fn of(&self, values: &[f32]) -> Vec<f32> {
        let components = values.chunks_exact(self.batch * self.channels);
        let rows = components.flat_map(|component| {
            let rows = self.list.iter();
            rows.map(|row| &component[row * self.channels..][..self.channels])
        });
        rows.collect::<Vec<_>>().concat()
    }

    /// Sets all other rows to zero.
    fn clear_others(&self, values: &mut [f32]) {
        for (row, values) in values.chunks_exact_mut(self.channels).enumerate() {
            if !self.list.contains(&(row % self.batch)) {
                values.fill(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_picked_and_the_others_cleared() {
        let rows = Rows {
            list: vec![0, 2],
            batch: 3,
            channels: 2,
        };
        let mut values: Vec<f32> = (1..=12).map(|v| v as f32).collect();
        let picked = [1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 11.0, 12.0];
        assert_eq!(rows.of(&values), picked);
        rows.clear_others(&mut values);
        let cleared = [1.0, 2.0, 0.0, 0.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 11.0, 12.0];
        assert_eq!(values, cleared);
    }
}
