//! The Euclidean norm over all blades.

use super::Scalar;
use super::function::{Array, Forward, Function};
use crate::Error;

/// `o = sqrt(sum_i x_i^2)` over the blades, with gradient 0 where `o = 0`, as in PyTorch.
///
/// Input: `x` `[blades, batch, channels]`. Output `[batch, channels]`. Invariant under the orthogonal group of a definite metric only.
#[derive(Debug)]
pub(crate) struct BladeNorm;

impl<T: Scalar> Function<T> for BladeNorm {
    type Saved = ();

    fn name(&self) -> &str {
        "blade_norm"
    }

    fn arity(&self) -> usize {
        1
    }

    fn forward(&self, inputs: &[Array<T>]) -> Result<Forward<T, ()>, Error> {
        let &[_, batch, channels] = inputs[0].shape else {
            return Err(Error::Shape {
                tensor: "blade_norm: x".to_owned(),
                expected: "[blades, batch, channels]".to_owned(),
                got: inputs[0].shape.to_vec(),
            });
        };
        let mut output = vec![T::zero(); batch * channels];
        if !output.is_empty() {
            for blade in inputs[0].data.chunks_exact(batch * channels) {
                for (sum, &x) in output.iter_mut().zip(blade) {
                    *sum += x * x;
                }
            }
        }
        for sum in &mut output {
            *sum = sum.root();
        }
        Ok(Forward {
            output,
            shape: vec![batch, channels],
            saved: (),
        })
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        (): &(),
        grad_output: Array<T>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Vec<T>>>, Error> {
        if !wanted[0] {
            return Ok(vec![None]);
        }
        let scale: Vec<T> = grad_output
            .data
            .iter()
            .zip(output.data)
            .map(|(&grad, &norm)| {
                if norm == T::zero() {
                    T::zero()
                } else {
                    grad / norm
                }
            })
            .collect();
        let mut grad = Vec::with_capacity(inputs[0].data.len());
        if !scale.is_empty() {
            for blade in inputs[0].data.chunks_exact(scale.len()) {
                grad.extend(blade.iter().zip(&scale).map(|(&x, &scale)| scale * x));
            }
        }
        Ok(vec![Some(grad)])
    }
}
