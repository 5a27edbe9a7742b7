//! The passes of operators inside of steps.

use flashcliff::{Operator, Pass, Tensor, TensorMut};

use crate::scratch::Buffer;
use crate::{Error, Number};

/// Writes the result of an operator whose inputs have one shape, which is that of the result too.
pub(crate) fn forward<T: Number>(
    operator: &Operator,
    inputs: &[&[T]],
    shape: &[usize],
    output: &mut [T],
) -> Result<(), Error> {
    if output.is_empty() {
        return Ok(());
    }
    let dims = operator.bind(&vec![shape; inputs.len()])?;
    let mut saved = Buffer::take(operator.saved_len(&dims));
    let mut workspace = Buffer::take(operator.workspace_len::<T>(&dims, Pass::Forward));
    let output = TensorMut::new(output, shape)?;
    Ok(operator.forward(&tensors(inputs, shape)?, output, &mut saved, &mut workspace)?)
}

/// Writes the gradients of the inputs of an operator that reads neither its output nor what it saves.
pub(crate) fn backward<T: Number>(
    operator: &Operator,
    inputs: &[&[T]],
    shape: &[usize],
    g: &[T],
    grads: &mut [&mut [T]],
) -> Result<(), Error> {
    if g.is_empty() {
        return Ok(());
    }
    let dims = operator.bind(&vec![shape; inputs.len()])?;
    let mut workspace = Buffer::take(operator.workspace_len::<T>(&dims, Pass::Backward));
    let tensors = tensors(inputs, shape)?;
    let g = Tensor::new(g, shape)?;
    let mut to = Vec::with_capacity(grads.len());
    for grad in grads {
        to.push(Some(TensorMut::new(grad, shape)?));
    }
    Ok(operator.backward(&tensors, g, &[], g, &mut to, &mut workspace)?)
}

fn tensors<'a, T: Number>(
    inputs: &[&'a [T]],
    shape: &[usize],
) -> Result<Vec<Tensor<'a, T>>, Error> {
    let tensors = inputs.iter().map(|data| Ok(Tensor::new(data, shape)?));
    tensors.collect()
}
