//! Times and checks one operator.

use flashcliff::ops::{self, LinearOptions, ProductOptions, SteerableOptions};
use flashcliff::{Algebra, Dim, Dims, Invariant, Operator, Pass, Tensor, TensorMut, TensorSpec};

use super::cases::{Case, Passes, Subject};
use super::measure::{Effort, Measurement};
use super::reference::Formula;
use crate::error::Error;
use flashcliff_floor::{Floor, values};

/// The difference from the formula that rounding in f32 explains, relative to the largest value of the row.
const TOLERANCE: f64 = 2e-4;
/// The tolerance for a gradient, which is compared with a central difference.
const GRADIENT_TOLERANCE: f64 = 2e-3;
/// The step of the central difference.
const STEP: f64 = 1e-4;

/// An operator with buffers for all tensors that it reads and writes.
struct Bench {
    operator: Operator,
    dims: Dims,
    inputs: Vec<(Vec<usize>, Vec<f32>)>,
    output: Vec<f32>,
    grad_output: Vec<f32>,
    grads: Vec<Vec<f32>>,
    saved: Vec<f32>,
    workspace: Vec<f32>,
}

/// Measures the case and checks its results.
///
/// # Errors
/// [`Error::WrongResult`].
pub(super) fn run(case: &Case, effort: Effort) -> Result<Measurement, Error> {
    let mut bench = Bench::new(case, bind(case.subject, case.algebra()?)?);
    let bytes = bench.bytes(case.passes);
    let cost = bench.operator.cost(&bench.dims);
    let flops = match case.passes {
        Passes::Forward => cost.forward,
        Passes::Both => cost.forward + cost.backward,
    };
    let mut floor = Floor::of_bytes(bytes);
    let (seconds, floor_seconds) = effort.medians(Some(&mut floor), || bench.pass(case.passes))?;
    Ok(Measurement {
        name: case.name.clone(),
        bytes: Some(bytes),
        flops: Some(flops),
        seconds,
        floor_seconds,
        target: case.target,
        difference: bench.check(case)?,
        memory: None,
    })
}

fn bind(subject: Subject, algebra: Algebra) -> Result<Operator, Error> {
    Ok(match subject {
        Subject::SgpNorm => ops::sgp_norm(algebra, &ProductOptions::default())?,
        Subject::FcgpNorm => ops::fcgp_norm(algebra, &ProductOptions::default())?,
        Subject::Linear => ops::mv_linear(algebra, &LinearOptions::default())?,
        Subject::Steerable => ops::steerable_product(algebra, &SteerableOptions::default())?,
        Subject::GradeNorm => ops::grade_norm(algebra)?,
        Subject::MvLayerNorm => ops::mv_layer_norm(algebra)?,
        Subject::MvSilu | Subject::HullsStep => ops::mv_silu(algebra, Invariant::Mag2)?,
    })
}

impl Bench {
    fn new(case: &Case, operator: Operator) -> Self {
        let dims = Dims {
            batch: case.batch,
            in_channels: case.in_channels,
            out_channels: case.out_channels,
        };
        let input = |(seed, spec): (usize, &TensorSpec)| {
            let shape = spec.shape(&dims);
            let data = values(shape.iter().product(), seed as u64 + 1);
            (shape, data)
        };
        let inputs: Vec<(Vec<usize>, Vec<f32>)> =
            operator.inputs().iter().enumerate().map(input).collect();
        let len = operator.output_shape(&dims).iter().product();
        let workspace = [Pass::Forward, Pass::Backward]
            .map(|pass| operator.workspace_len::<f32>(&dims, pass))
            .into_iter()
            .max()
            .unwrap_or(0);
        Self {
            output: vec![0.0; len],
            grad_output: values(len, 99),
            grads: inputs
                .iter()
                .map(|(_, data)| vec![0.0; data.len()])
                .collect(),
            saved: vec![0.0; operator.saved_len(&dims)],
            workspace: vec![0.0; workspace],
            inputs,
            dims,
            operator,
        }
    }

    /// The least number of bytes that the passes move: each tensor once a pass.
    fn bytes(&self, passes: Passes) -> usize {
        let inputs: usize = self
            .inputs
            .iter()
            .map(|(_, data)| size_of_val(&data[..]))
            .sum();
        let output = size_of_val(&self.output[..]);
        match passes {
            Passes::Forward => inputs + output,
            // The backward pass reads the inputs and the gradient of the output, and writes the gradients of the inputs.
            Passes::Both => inputs + output + 2 * inputs + output,
        }
    }

    fn pass(&mut self, passes: Passes) -> Result<(), Error> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (shape, data) in &self.inputs {
            inputs.push(Tensor::new(data, shape)?);
        }
        let shape = self.operator.output_shape(&self.dims);
        let output = TensorMut::new(&mut self.output, &shape)?;
        self.operator
            .forward(&inputs, output, &mut self.saved, &mut self.workspace)?;
        if passes == Passes::Forward {
            return Ok(());
        }
        let mut grads = Vec::with_capacity(inputs.len());
        for (grad, (shape, _)) in self.grads.iter_mut().zip(&self.inputs) {
            grads.push(Some(TensorMut::new(grad, shape)?));
        }
        let output = Tensor::new(&self.output, &shape)?;
        let grad_output = Tensor::new(&self.grad_output, &shape)?;
        let (saved, workspace) = (&self.saved, &mut self.workspace);
        self.operator
            .backward(&inputs, output, saved, grad_output, &mut grads, workspace)?;
        Ok(())
    }

    /// Compares some rows with the formula. Returns the largest relative difference of the output.
    fn check(&self, case: &Case) -> Result<f64, Error> {
        let formula = Formula::new(case.subject, self.operator.algebra().cayley());
        let mut largest = 0.0_f64;
        for row in [0, case.batch / 2, case.batch - 1] {
            let inputs: Vec<Vec<f64>> = self
                .operator
                .inputs()
                .iter()
                .zip(&self.inputs)
                .map(|(spec, (_, data))| match spec.dims.contains(&Dim::Batch) {
                    true => self.row(data, row, case.in_channels),
                    false => data.iter().map(|&v| f64::from(v)).collect(),
                })
                .collect();
            let expected = formula.row(&inputs, case.in_channels, case.out_channels);
            let got = self.row(&self.output, row, case.out_channels);
            let check = Comparison {
                case,
                tensor: "o",
                tolerance: TOLERANCE,
                scale: scale(&expected),
            };
            for (index, (&expected, &got)) in expected.iter().zip(&got).enumerate() {
                largest = largest.max(check.difference(index, expected, got)?);
            }
            if case.passes == Passes::Both {
                self.check_gradients(case, &formula, row, &inputs)?;
            }
        }
        Ok(largest)
    }

    /// Compares some gradients of multivectors of a row with central differences of the formula.
    fn check_gradients(
        &self,
        case: &Case,
        formula: &Formula<'_>,
        row: usize,
        inputs: &[Vec<f64>],
    ) -> Result<(), Error> {
        let weights = self.row(&self.grad_output, row, case.out_channels);
        let loss = |inputs: &[Vec<f64>]| -> f64 {
            let output = formula.row(inputs, case.in_channels, case.out_channels);
            output.iter().zip(&weights).map(|(o, w)| o * w).sum()
        };
        for (position, spec) in self.operator.inputs().iter().enumerate() {
            if !spec.dims.contains(&Dim::Batch) {
                continue;
            }
            let got = self.row(&self.grads[position], row, case.in_channels);
            let check = Comparison {
                case,
                tensor: spec.name,
                tolerance: GRADIENT_TOLERANCE,
                scale: scale(&got),
            };
            for index in (0..got.len()).step_by(got.len() / 7 + 1) {
                let mut moved = inputs.to_vec();
                moved[position][index] += STEP;
                let above = loss(&moved);
                moved[position][index] -= 2.0 * STEP;
                let slope = (above - loss(&moved)) / (2.0 * STEP);
                check.difference(index, slope, got[index])?;
            }
        }
        Ok(())
    }

    /// One batch element of a `[blades, batch, channels]` tensor.
    fn row(&self, data: &[f32], row: usize, channels: usize) -> Vec<f64> {
        let blades = data.chunks_exact(self.dims.batch * channels);
        let rows = blades.flat_map(|blade| &blade[row * channels..(row + 1) * channels]);
        rows.map(|&v| f64::from(v)).collect()
    }
}

fn scale(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |scale, value| value.abs().max(scale))
}

struct Comparison<'a> {
    case: &'a Case,
    tensor: &'static str,
    tolerance: f64,
    scale: f64,
}

impl Comparison<'_> {
    /// The relative difference of two values, if it is small enough.
    fn difference(&self, index: usize, expected: f64, got: f64) -> Result<f64, Error> {
        let difference = (expected - got).abs();
        let tolerance = self.tolerance * self.scale;
        // The comparison also fails if one of them is not a number.
        if difference <= tolerance {
            return Ok(difference / self.scale.max(f64::MIN_POSITIVE));
        }
        Err(Error::WrongResult {
            case: self.case.name.clone(),
            tensor: self.tensor,
            index,
            expected,
            got,
            tolerance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    #[test]
    fn a_wrong_result_is_found() {
        let cases = cases::all(true);
        let case = cases
            .iter()
            .find(|case| case.subject == Subject::SgpNorm)
            .unwrap();
        let operator = bind(case.subject, case.algebra().unwrap()).unwrap();
        let mut bench = Bench::new(case, operator);
        bench.pass(Passes::Both).unwrap();
        assert!(bench.check(case).unwrap() < 1e-5);
        bench.output[0] += 0.01;
        assert!(matches!(
            bench.check(case),
            Err(Error::WrongResult { index: 0, .. })
        ));
        bench.output[0] = f32::NAN;
        assert!(matches!(bench.check(case), Err(Error::WrongResult { .. })));
    }

    #[test]
    fn a_wrong_gradient_is_found() {
        let cases = cases::all(true);
        let both = |case: &&Case| case.passes == Passes::Both;
        for case in cases
            .iter()
            .filter(both)
            .filter(|c| c.subject != Subject::HullsStep)
        {
            let operator = bind(case.subject, case.algebra().unwrap()).unwrap();
            let mut bench = Bench::new(case, operator);
            bench.pass(Passes::Both).unwrap();
            bench.check(case).unwrap();
            let largest = scale(&bench.row(&bench.grads[0], 0, case.in_channels));
            bench.grads[0][0] += 1.0 + largest as f32;
            assert!(matches!(
                bench.check(case),
                Err(Error::WrongResult { tensor: "x", .. })
            ));
        }
    }

    #[test]
    fn bytes_are_those_of_the_tensors() {
        let cases = cases::all(true);
        let case = cases
            .iter()
            .find(|case| case.subject == Subject::SgpNorm)
            .unwrap();
        let operator = bind(case.subject, case.algebra().unwrap()).unwrap();
        let tensor = 8 * case.batch * case.in_channels * 4;
        let w = 20 * case.in_channels * 4;
        let bench = Bench::new(case, operator);
        assert_eq!(bench.bytes(Passes::Forward), 3 * tensor + w);
        assert_eq!(bench.bytes(Passes::Both), 8 * tensor + 3 * w);
    }
}
