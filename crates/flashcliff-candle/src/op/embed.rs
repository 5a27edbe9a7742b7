//! Vectors and a scalar bias into full multivectors.

use super::Scalar;
use super::function::{Array, Forward, Function};
use crate::Error;

/// `o_0 = bias`, `o_i = v_(i-1)` on the `vectors` vector blades, zero elsewhere.
///
/// Inputs: `v` `[vectors, batch, channels]`, `bias` `[channels]`. Output `[blades, batch, channels]`.
#[derive(Debug)]
pub(crate) struct EmbedVectors {
    /// Number of basis vectors.
    pub(crate) vectors: usize,
    /// Number of blades of the output.
    pub(crate) blades: usize,
}

impl<T: Scalar> Function<T> for EmbedVectors {
    type Saved = ();

    fn name(&self) -> &str {
        "embed_vectors"
    }

    fn arity(&self) -> usize {
        2
    }

    fn forward(&self, inputs: &[Array<T>]) -> Result<Forward<T, ()>, Error> {
        let &[vectors, batch, channels] = inputs[0].shape else {
            return Err(self.shape_error("v", inputs[0].shape));
        };
        if vectors != self.vectors {
            return Err(self.shape_error("v", inputs[0].shape));
        }
        if inputs[1].shape != [channels] {
            return Err(self.shape_error("bias", inputs[1].shape));
        }
        let row = batch * channels;
        let mut output = vec![T::zero(); self.blades * row];
        if channels > 0 {
            for scalars in output[..row].chunks_exact_mut(channels) {
                scalars.copy_from_slice(inputs[1].data);
            }
        }
        output[row..row * (1 + vectors)].copy_from_slice(inputs[0].data);
        Ok(Forward {
            output,
            shape: vec![self.blades, batch, channels],
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
        let channels = output.shape[2];
        let row = output.shape[1] * channels;
        let vectors = wanted[0].then(|| grad_output.data[row..row + inputs[0].data.len()].to_vec());
        let bias = wanted[1].then(|| {
            let mut sum = vec![T::zero(); channels];
            if channels > 0 {
                for scalars in grad_output.data[..row].chunks_exact(channels) {
                    for (sum, &scalar) in sum.iter_mut().zip(scalars) {
                        *sum += scalar;
                    }
                }
            }
            sum
        });
        Ok(vec![vectors, bias])
    }
}

impl EmbedVectors {
    fn shape_error(&self, input: &str, got: &[usize]) -> Error {
        Error::Shape {
            tensor: format!("embed_vectors: {input}"),
            expected: if input == "v" {
                format!("[{}, batch, channels]", self.vectors)
            } else {
                "[channels]".to_owned()
            },
            got: got.to_vec(),
        }
    }
}
