//! The results of a forward pass.

#[allow(unused_imports, reason = "links of the documentation")]
use super::Operator;
use crate::{Error, Tensor};

/// The results of [`Operator::evaluate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation<T> {
    /// The output.
    pub output: Vec<T>,
    /// The shape of the output.
    pub output_shape: Vec<usize>,
    /// The values that the backward pass reads: the tensor that is kept, if any, then the row sums.
    pub saved: Vec<T>,
}

impl<T> Evaluation<T> {
    /// The output as a tensor, an input of the next operator for example.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if the fields were changed and no longer fit each other.
    pub fn tensor(&self) -> Result<Tensor<'_, T>, Error> {
        Tensor::new(&self.output, &self.output_shape)
    }
}
