//! Calls with one mistake give a typed error and write nothing.

use flashcliff::{Dims, Element, Error, Operator, Pass, Tensor, TensorMut};

use super::draw::Call;
use crate::cases::input_shapes;
use crate::random::Random;

/// The value that the buffers hold before a call.
const UNTOUCHED: f64 = 77.0;

/// All arguments of both passes of a call.
struct Parts<T> {
    inputs: Vec<(Vec<usize>, Vec<T>)>,
    output: (Vec<usize>, Vec<T>),
    grad_output: (Vec<usize>, Vec<T>),
    grads: Vec<(Vec<usize>, Vec<T>)>,
    saved: Vec<T>,
    workspaces: [Vec<T>; 2],
}

/// Breaks the call in one random way and runs it.
pub(super) fn check(call: &Call<'_>) -> Result<(), String> {
    if call.single {
        check_as::<f32>(call)
    } else {
        check_as::<f64>(call)
    }
}

fn check_as<T: Element>(call: &Call<'_>) -> Result<(), String> {
    let mut random = Random::new(call.seed ^ 0xBAD);
    let (op, dims) = (&call.op, &call.dims);
    call.pool.install(|| {
        let mut parts = Parts::<T>::new(op, dims);
        let (what, backward) = parts.break_one(&mut random);
        let result = if backward {
            parts.backward(op)
        } else {
            parts.forward(op)
        };
        match result {
            Ok(()) => return Err(format!("{what} was not refused")),
            Err(
                Error::ShapeMismatch { .. }
                | Error::TensorCount { .. }
                | Error::BufferTooSmall { .. }
                | Error::ShapeTooLarge { .. }
                | Error::LengthMismatch { .. },
            ) => {}
            Err(error) => return Err(format!("{what} was refused by {error:?}")),
        }
        let mut written = vec![&parts.saved, &parts.workspaces[0], &parts.workspaces[1]];
        written.push(&parts.output.1);
        written.extend(parts.grads.iter().map(|(_, data)| data));
        match written
            .into_iter()
            .flatten()
            .all(|x| x.to_f64() == UNTOUCHED)
        {
            true => Ok(()),
            false => Err(format!("{what} was refused after a write")),
        }
    })
}

fn filled<T: Element>(shape: &[usize]) -> Vec<T> {
    vec![T::from_f64(UNTOUCHED); shape.iter().product()]
}

fn with_shape<T: Element>(shape: Vec<usize>) -> (Vec<usize>, Vec<T>) {
    let data = filled(&shape);
    (shape, data)
}

impl<T: Element> Parts<T> {
    fn new(op: &Operator, dims: &Dims) -> Self {
        let shapes = input_shapes(op, dims);
        let buffer = |len| vec![T::from_f64(UNTOUCHED); len];
        Self {
            inputs: shapes.iter().cloned().map(with_shape).collect(),
            output: with_shape(op.output_shape(dims)),
            grad_output: with_shape(op.output_shape(dims)),
            grads: shapes.into_iter().map(with_shape).collect(),
            saved: buffer(op.saved_len(dims)),
            workspaces: [Pass::Forward, Pass::Backward]
                .map(|pass| buffer(op.workspace_len::<T>(dims, pass))),
        }
    }

    /// Breaks one thing. Returns its name, and whether only the backward pass sees it.
    fn break_one(&mut self, random: &mut Random) -> (String, bool) {
        loop {
            let backward = random.once_in(2);
            match random.below(8) {
                0 | 1 => {
                    let at = random.below(self.inputs.len());
                    let what = reshape(&mut self.inputs[at], random);
                    return (format!("input {at}, {what}"), backward);
                }
                2 => return (reshape(&mut self.output, random), backward),
                3 => return (reshape(&mut self.grad_output, random), true),
                4 => {
                    let at = random.below(self.grads.len());
                    let what = reshape(&mut self.grads[at], random);
                    return (format!("gradient {at}, {what}"), true);
                }
                5 => {
                    let tensors = if backward {
                        &mut self.grads
                    } else {
                        &mut self.inputs
                    };
                    if random.once_in(2) {
                        tensors.push(with_shape(vec![1]));
                        return ("one tensor more".to_owned(), backward);
                    }
                    tensors.pop();
                    return ("one tensor less".to_owned(), backward);
                }
                6 if self.saved.pop().is_some() => return ("short `saved`".to_owned(), backward),
                7 if self.workspaces[usize::from(backward)].pop().is_some() => {
                    return ("short workspace".to_owned(), backward);
                }
                _ => {}
            }
        }
    }

    fn forward(&mut self, op: &Operator) -> Result<(), Error> {
        let inputs = tensors(&self.inputs)?;
        let output = TensorMut::new(&mut self.output.1, &self.output.0)?;
        let workspace = &mut self.workspaces[0];
        op.forward(&inputs, output, &mut self.saved, workspace)
    }

    fn backward(&mut self, op: &Operator) -> Result<(), Error> {
        let inputs = tensors(&self.inputs)?;
        let mut grads = Vec::new();
        for (shape, data) in &mut self.grads {
            grads.push(Some(TensorMut::new(data, shape)?));
        }
        let output = Tensor::new(&self.output.1, &self.output.0)?;
        let grad_output = Tensor::new(&self.grad_output.1, &self.grad_output.0)?;
        let (saved, workspace) = (&self.saved, &mut self.workspaces[1]);
        op.backward(&inputs, output, saved, grad_output, &mut grads, workspace)
    }
}

fn tensors<T: Element>(all: &[(Vec<usize>, Vec<T>)]) -> Result<Vec<Tensor<'_, T>>, Error> {
    all.iter()
        .map(|(shape, data)| Tensor::new(data, shape))
        .collect()
}

/// Changes the shape of a tensor together with its data, or makes the data too long.
fn reshape<T: Element>(tensor: &mut (Vec<usize>, Vec<T>), random: &mut Random) -> String {
    let (shape, data) = tensor;
    let before = shape.clone();
    let axis = random.below(shape.len());
    match random.below(4) {
        0 => shape[axis] += 1 + random.below(3),
        1 if shape[axis] > 0 => shape[axis] -= 1,
        2 => shape.push(1),
        _ => {
            shape.remove(axis);
        }
    }
    if random.once_in(4) {
        // A view of data that is too short or too long is refused by itself.
        data.push(T::from_f64(UNTOUCHED));
    } else {
        *data = filled(shape);
    }
    format!("{before:?} as {shape:?} of {} elements", data.len())
}
