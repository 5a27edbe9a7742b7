//! The Euclidean norm over all blades.

use flashcliff::{Element, Pass};

use super::Scalar;
use super::function::{Array, Function, Slots};
use super::scratch::Buffer;
use crate::Error;
use crate::timeline::Operation;

/// `o = sqrt(sum_i x_i^2)` over the blades. The gradient is 0 if `o = 0`, as in PyTorch.
///
/// Input: `x` `[blades, batch, channels]`. Output `[batch, channels]`. Invariant under the
/// orthogonal group of a definite metric only.
#[derive(Debug)]
pub(crate) struct BladeNorm;

impl BladeNorm {
    /// The floating-point operations of a pass, by elements of the input and of the output: forward a square and a sum of each element, and a
    /// root; backward a quotient, and a product of each element.
    pub(crate) fn flops(input: usize, output: usize, pass: Pass) -> usize {
        match pass {
            Pass::Forward => 2 * input + output,
            Pass::Backward => input + output,
        }
    }
}

/// The gradient of the input, from the output and its gradient.
pub(crate) fn pull_back<T: Scalar>(x: &[T], output: &[T], grad_output: &[T], grad: &mut [T]) {
    if output.is_empty() {
        return;
    }
    let mut scale = Buffer::take(output.len());
    for ((scale, &grad), &norm) in scale.iter_mut().zip(grad_output).zip(output) {
        *scale = if norm == T::zero() {
            T::zero()
        } else {
            grad / norm
        };
    }
    let blades = x.chunks_exact(scale.len());
    for (grad, blade) in grad.chunks_exact_mut(scale.len()).zip(blades) {
        for ((grad, &x), &scale) in grad.iter_mut().zip(blade).zip(&*scale) {
            *grad = scale * x;
        }
    }
}

impl<T: Scalar> Function<T> for BladeNorm {
    type Saved = ();

    fn name(&self) -> &str {
        "blade_norm"
    }

    fn arity(&self) -> usize {
        1
    }

    fn operation(
        &self,
        shapes: &[Vec<usize>],
        output: &[usize],
        pass: Pass,
        wanted: &[bool],
    ) -> Option<Operation> {
        let len = |shape: &[usize]| shape.iter().product();
        let flops = Self::flops(len(&shapes[0]), len(output), pass);
        let (name, dtype) = (Function::<T>::name(self), <T as Element>::DTYPE);
        let operation = Operation::of_function(name, shapes, output, dtype, pass, wanted);
        Some(operation.with_flops(flops))
    }

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        match *inputs[0].shape {
            [_, batch, channels] => Ok(vec![batch, channels]),
            _ => Err(Error::Shape {
                tensor: "blade_norm: x".to_owned(),
                expected: "[blades, batch, channels]".to_owned(),
                got: inputs[0].shape.to_vec(),
            }),
        }
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<(), Error> {
        output.fill(T::zero());
        if output.is_empty() {
            return Ok(());
        }
        for blade in inputs[0].data.chunks_exact(output.len()) {
            for (sum, &x) in output.iter_mut().zip(blade) {
                *sum += x * x;
            }
        }
        for sum in output {
            *sum = sum.root();
        }
        Ok(())
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        (): &(),
        grad_output: Array<T>,
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        if let Some(grad) = &mut slots[0] {
            pull_back(inputs[0].data, output.data, grad_output.data, grad);
        }
        Ok(())
    }
}
