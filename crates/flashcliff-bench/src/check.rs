//! Compares both passes of an operator with its formula, on some rows.
//!
//! The gradient of the output is zero in all other rows, so the gradients of parameters come from the compared rows alone. Gradients are
//! compared along one direction for each tensor: the sum of all elements, each times a random sign, is the slope of the formula.

use flashcliff::{Dims, Dtype, Operator, TensorSpec};
use flashcliff_floor::values;

use crate::reference::Formula;
use crate::{Case, Error};

/// The step of the central difference.
const STEP: f64 = 1e-6;

/// The differences that rounding explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    /// The difference of an element of the output, relative to the largest of its row.
    pub(crate) output: f64,
    /// The difference of a slope, relative to the length of the gradient.
    pub(crate) slope: f64,
}

impl Tolerance {
    pub(crate) const F32: Self = Self {
        output: 2e-4,
        slope: 2e-3,
    };
    /// The central difference is less exact than the gradient.
    pub(crate) const F64: Self = Self {
        output: 1e-11,
        slope: 1e-5,
    };
    /// Four roundings to 8 bits of an element; as many of each gradient, in units of its tensor's length.
    pub(crate) const BF16: Self = Self {
        output: 1.6e-2,
        slope: 3e-2,
    };
    /// As many roundings to 11 bits.
    pub(crate) const F16: Self = Self {
        output: 2e-3,
        slope: 4e-3,
    };

    /// The tolerance of tensors of a type.
    pub(crate) fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F64 => Self::F64,
            Dtype::Bf16 => Self::BF16,
            Dtype::F16 => Self::F16,
            _ => Self::F32,
        }
    }
}

/// The rows that are compared: the first, the middle and the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    rows: Vec<usize>,
    batch: usize,
}

impl Sample {
    pub(crate) fn of(dims: &Dims) -> Self {
        let batch = dims.batch;
        let mut rows = vec![0, batch / 2, batch.saturating_sub(1)];
        rows.dedup();
        Self { rows, batch }
    }

    /// The compared rows of a tensor, or all of a parameter, as numbers in f64.
    pub(crate) fn pick(
        &self,
        spec: &TensorSpec,
        len: usize,
        element: impl Fn(usize) -> f64,
    ) -> Vec<Vec<f64>> {
        if spec.is_parameter() {
            return vec![(0..len).map(element).collect()];
        }
        let lanes = len / self.components(spec, len).max(1);
        let channels = lanes / self.batch.max(1);
        let of_row = |row: usize| -> Vec<f64> {
            let starts = (0..len).step_by(lanes.max(1));
            let places = starts.flat_map(|start| {
                let first = start + row * channels;
                first..first + channels
            });
            places.map(&element).collect()
        };
        self.rows.iter().map(|&row| of_row(row)).collect()
    }

    /// Sets all elements of a tensor with a batch to a value, except the elements of the compared rows.
    pub(crate) fn clear_others<T: Copy>(&self, spec: &TensorSpec, data: &mut [T], zero: T) {
        let lanes = data.len() / self.components(spec, data.len()).max(1);
        let channels = lanes / self.batch.max(1);
        for (place, value) in data.iter_mut().enumerate() {
            let row = place % lanes.max(1) / channels.max(1);
            if !self.rows.contains(&row) {
                *value = zero;
            }
        }
    }

    /// The length of the first axis.
    fn components(&self, spec: &TensorSpec, len: usize) -> usize {
        match spec.dims.first() {
            Some(flashcliff::Dim::Fixed(components)) => *components,
            _ => len,
        }
    }
}

/// The compared rows of all tensors, or a whole parameter in place of rows.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    pub(crate) inputs: Vec<Vec<Vec<f64>>>,
    pub(crate) output: Vec<Vec<f64>>,
    pub(crate) grad_output: Vec<Vec<f64>>,
    pub(crate) grads: Vec<Vec<Vec<f64>>>,
}

/// Compares the rows with the formula. Returns the largest difference of an element of the output, relative to the largest of its row.
pub(crate) fn compare(
    case: &Case,
    operator: &Operator,
    sampled: &Sampled,
    tolerance: Tolerance,
) -> Result<f64, Error> {
    let comparison = Comparison {
        case,
        operator,
        sampled,
        tolerance,
        formula: Formula::new(case.operator, operator.algebra().cayley())?,
    };
    let largest = comparison.outputs()?;
    for (position, spec) in operator.inputs().iter().enumerate() {
        comparison.slopes(position, spec)?;
    }
    Ok(largest)
}

struct Comparison<'a> {
    case: &'a Case,
    operator: &'a Operator,
    sampled: &'a Sampled,
    tolerance: Tolerance,
    formula: Formula,
}

impl Comparison<'_> {
    /// The inputs of one row: its rows of multivectors, and whole parameters.
    fn inputs(&self, row: usize) -> Vec<Vec<f64>> {
        let specs = self.operator.inputs().iter().zip(&self.sampled.inputs);
        specs
            .map(|(spec, rows)| rows[if spec.is_parameter() { 0 } else { row }].clone())
            .collect()
    }

    fn evaluate(&self, inputs: &[Vec<f64>]) -> Vec<f64> {
        let dims = &self.case.dims;
        self.formula
            .row(inputs, dims.in_channels, dims.out_channels)
    }

    fn outputs(&self) -> Result<f64, Error> {
        let mut largest = 0.0_f64;
        for (row, got) in self.sampled.output.iter().enumerate() {
            let expected = self.evaluate(&self.inputs(row));
            let scale = expected.iter().fold(0.0_f64, |scale, v| scale.max(v.abs()));
            if expected.len() != got.len() {
                return Err(self.wrong("o", got.len(), expected.len() as f64, f64::NAN, 0.0));
            }
            for (index, (&expected, &got)) in expected.iter().zip(got).enumerate() {
                let difference = (expected - got).abs();
                let allowed = self.tolerance.output * scale;
                // The comparison also fails if one of them is not a number.
                if difference <= allowed {
                    largest = largest.max(difference / scale.max(f64::MIN_POSITIVE));
                } else {
                    return Err(self.wrong("o", index, expected, got, allowed));
                }
            }
        }
        Ok(largest)
    }

    /// Compares the gradient of an input with slopes: row by row, or over all rows for a parameter.
    fn slopes(&self, position: usize, spec: &TensorSpec) -> Result<(), Error> {
        let rows = self.sampled.grad_output.len();
        for (number, grad) in self.sampled.grads[position].iter().enumerate() {
            let signs = values(grad.len(), 41 + position as u64);
            let signs: Vec<f64> = signs.iter().map(|v| f64::from(v.signum())).collect();
            let rows = match spec.is_parameter() {
                true => 0..rows,
                false => number..number + 1,
            };
            let loss = |step: f64| -> f64 {
                let of_row = |row: usize| -> f64 {
                    let mut inputs = self.inputs(row);
                    for (value, sign) in inputs[position].iter_mut().zip(&signs) {
                        *value += step * sign;
                    }
                    let output = self.evaluate(&inputs);
                    let weights = &self.sampled.grad_output[row];
                    output.iter().zip(weights).map(|(o, w)| o * w).sum()
                };
                rows.clone().map(of_row).sum()
            };
            let expected = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
            let got: f64 = grad.iter().zip(&signs).map(|(g, sign)| g * sign).sum();
            let length = grad.iter().map(|g| g * g).sum::<f64>().sqrt();
            let allowed = self.tolerance.slope * length;
            // The comparison also fails if one of them is not a number. An infinite gradient allows everything.
            if (expected - got).abs() <= allowed && length.is_finite() {
                continue;
            }
            return Err(self.wrong(
                &format!("grad_{} along random signs", spec.name),
                number,
                expected,
                got,
                allowed,
            ));
        }
        Ok(())
    }

    fn wrong(&self, tensor: &str, index: usize, expected: f64, got: f64, tolerance: f64) -> Error {
        Error::WrongResult {
            case: self.case.name(),
            tensor: tensor.to_owned(),
            index,
            expected,
            got,
            tolerance,
        }
    }
}
