//! Embeds vectors and a scalar bias in full multivectors.

use super::Scalar;
use super::function::{Array, Function, Slots};
use crate::Error;

/// `o_0 = bias`, `o_i = v_(i-1)` on the `vectors` vector blades, zero elsewhere.
///
/// Inputs: `v` `[vectors, batch, channels]`, `bias` `[channels]`. Output `[blades, batch,
/// channels]`.
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

    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error> {
        let &[vectors, batch, channels] = inputs[0].shape else {
            return Err(self.shape_error("v", inputs[0].shape));
        };
        if vectors != self.vectors {
            return Err(self.shape_error("v", inputs[0].shape));
        }
        if inputs[1].shape != [channels] {
            return Err(self.shape_error("bias", inputs[1].shape));
        }
        Ok(vec![self.blades, batch, channels])
    }

    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<(), Error> {
        let (vectors, bias) = (inputs[0].data, inputs[1].data);
        let (scalars, rest) = output.split_at_mut(output.len() / self.blades);
        if !bias.is_empty() {
            for row in scalars.chunks_exact_mut(bias.len()) {
                row.copy_from_slice(bias);
            }
        }
        let (head, zeros) = rest.split_at_mut(vectors.len());
        head.copy_from_slice(vectors);
        zeros.fill(T::zero());
        Ok(())
    }

    fn backward(
        &self,
        inputs: &[Array<T>],
        _: Array<T>,
        (): &(),
        grad_output: Array<T>,
        mut slots: Slots<T>,
    ) -> Result<(), Error> {
        let (scalars, rest) = grad_output
            .data
            .split_at(grad_output.data.len() / self.blades);
        if let Some(vectors) = &mut slots[0] {
            vectors.copy_from_slice(&rest[..inputs[0].data.len()]);
        }
        if let Some(bias) = &mut slots[1] {
            bias.fill(T::zero());
            if !bias.is_empty() {
                for row in scalars.chunks_exact(bias.len()) {
                    for (sum, &scalar) in bias.iter_mut().zip(row) {
                        *sum += scalar;
                    }
                }
            }
        }
        Ok(())
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
