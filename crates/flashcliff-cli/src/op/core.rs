//! An operator of the core on the tensors of a file.

use candle_core::{Device, Var};
use flashcliff::{Dims, Operator, Pass, Tensor};

use super::layer;
use super::store::{Array, COPIES, GRAD_OUTPUT, Results, Stored, TensorFile};
use crate::error::Error;
use crate::memory::{elements, room_for};

/// The names of the inputs, in the operator's order.
pub(super) fn input_names(operator: &Operator) -> Vec<String> {
    operator
        .inputs()
        .iter()
        .map(|spec| spec.name.to_owned())
        .collect()
}

/// The tensors with their shapes, a line each.
pub(super) fn shapes(operator: &Operator) -> String {
    let inputs = operator.inputs().iter().map(|spec| format!("{spec}\n"));
    inputs
        .chain([format!("-> {}\n", operator.output())])
        .collect()
}

/// Runs the operator on a device and, if asked, its gradients.
///
/// # Errors
/// Shapes that do not fit.
pub(super) fn run<T: Stored>(
    operator: &Operator,
    file: &TensorFile,
    grad: bool,
    device: &Device,
) -> Result<Results, Error> {
    let mut arrays: Vec<Array<T>> = Vec::new();
    for spec in operator.inputs() {
        arrays.push(file.array(spec.name)?);
    }
    let shapes: Vec<&[usize]> = arrays.iter().map(|array| &array.shape[..]).collect();
    // Before the tensors are looked at, so that the message names the operator and the tensor.
    let dims = operator.bind(&shapes)?;
    room_for_results::<T>(operator, &dims, &arrays, grad)?;
    let grad_output: Option<Array<T>> = grad.then(|| file.array(GRAD_OUTPUT)).transpose()?;
    if let Some(grad_output) = &grad_output {
        let expected = operator.output_shape(&dims);
        if grad_output.shape != expected {
            return Err(Error::TensorShape {
                operator: operator.name().to_owned(),
                tensor: GRAD_OUTPUT.to_owned(),
                expected: format!("{expected:?}"),
                got: grad_output.shape.clone(),
            });
        }
    }
    if !device.is_cpu() {
        return run_beside(operator, &arrays, grad_output.as_ref(), device);
    }
    let mut inputs = Vec::new();
    for array in &arrays {
        inputs.push(Tensor::new(&array.data, &array.shape)?);
    }
    let evaluation = operator.evaluate(&inputs)?;
    let mut results = Results::default();
    results.insert("o", &evaluation.output_shape, &evaluation.output);
    if let Some(grad_output) = &grad_output {
        let grad_output = Tensor::new(&grad_output.data, &grad_output.shape)?;
        let gradients = operator.gradients(&inputs, &evaluation, grad_output)?;
        for ((spec, array), gradient) in operator.inputs().iter().zip(&arrays).zip(&gradients) {
            results.insert(format!("grad_{}", spec.name), &array.shape, gradient);
        }
    }
    Ok(results)
}

/// Checks that results, what the operator computes them with, and their file have room in memory.
fn room_for_results<T: Stored>(
    operator: &Operator,
    dims: &Dims,
    arrays: &[Array<T>],
    grad: bool,
) -> Result<(), Error> {
    let shape = operator.output_shape(dims);
    let mut results = elements(&shape);
    // Counted in u128 first: the core counts in usize.
    if results < 1 << 60 {
        let workspace = |pass| operator.workspace_len::<T>(dims, pass) as u128;
        results = COPIES * results + operator.saved_len(dims) as u128 + workspace(Pass::Forward);
        if grad {
            let inputs: usize = arrays.iter().map(|array| array.data.len()).sum();
            results += COPIES * inputs as u128 + workspace(Pass::Backward);
        }
    }
    room_for(
        format!("{}: an output of {shape:?}", operator.name()),
        results * size_of::<T>() as u128,
    )
}

/// Runs the operator on a GPU, through candle.
fn run_beside<T: Stored>(
    operator: &Operator,
    arrays: &[Array<T>],
    grad_output: Option<&Array<T>>,
    device: &Device,
) -> Result<Results, Error> {
    let mut inputs = Vec::new();
    for array in arrays {
        inputs.push(Var::from_slice(&array.data, &array.shape[..], device)?);
    }
    let tensors: Vec<&candle_core::Tensor> = inputs.iter().map(Var::as_tensor).collect();
    let output = flashcliff_candle::op::apply(operator, &tensors)?;
    let mut results = Results::default();
    results.insert("o", output.dims(), &layer::elements::<T>(&output)?);
    if let Some(grad) = grad_output {
        let grad = candle_core::Tensor::from_slice(&grad.data, &grad.shape[..], device)?;
        let gradients = (&output * grad)?.sum_all()?.backward()?;
        for (spec, (input, array)) in operator.inputs().iter().zip(inputs.iter().zip(arrays)) {
            let gradient = match gradients.get(input) {
                Some(gradient) => layer::elements::<T>(gradient)?,
                None => vec![T::default(); array.data.len()],
            };
            results.insert(format!("grad_{}", spec.name), &array.shape, &gradient);
        }
    }
    Ok(results)
}
