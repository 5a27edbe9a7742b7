//! What one node of a graph computes, in slices: no candle types.

use super::Scalar;
use crate::Error;

/// A read-only array: elements and shape.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) shape: &'a [usize],
}

impl<'a, T: Scalar> Array<'a, T> {
    /// The core's view of this array.
    pub(crate) fn tensor(self) -> Result<flashcliff::Tensor<'a, T>, Error> {
        Ok(flashcliff::Tensor::new(self.data, self.shape)?)
    }
}

/// A differentiable function of several arrays with one result.
pub(crate) trait Function<T: Scalar>: Send + Sync + 'static {
    /// What the backward pass needs beyond inputs and output. Lives as long as the graph.
    type Saved: Send + Sync + 'static;

    /// Name, for error messages.
    fn name(&self) -> &str;

    /// Number of inputs.
    fn arity(&self) -> usize;

    /// The shape of the result, after a check of the inputs' shapes.
    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error>;

    /// Writes every element of the result, whatever was there before.
    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Self::Saved, Error>;

    /// Writes every element of the gradients that have a slot, whatever was there before. One slot
    /// for each input, in order.
    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Self::Saved,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error>;
}

/// Where the gradients of the inputs go; `None` for those that nobody asked for.
pub(crate) type Slots<'a, T> = Vec<Option<&'a mut [T]>>;
