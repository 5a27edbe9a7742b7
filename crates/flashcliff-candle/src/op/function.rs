//! The computation of one node of a graph, on slices and without candle types.

use flashcliff::Operator;

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
    /// The values that the backward pass needs besides inputs and output. They live as long as the graph.
    type Saved: Send + Sync + 'static;

    /// Name, for error messages.
    fn name(&self) -> &str;

    /// Number of inputs.
    fn arity(&self) -> usize;

    /// The operator of the core that the function is, if it is one.
    fn operator(&self) -> Option<&Operator> {
        None
    }

    /// The shape of the result, after a check of the inputs' shapes.
    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error>;

    /// Writes every element of the result, whatever was there before.
    fn forward(&self, inputs: &[Array<T>], output: &mut [T]) -> Result<Self::Saved, Error>;

    /// Writes every element of the gradients that have a slot, whatever was there before. There is one slot for each
    /// input, in order.
    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Self::Saved,
        grad_output: Array<T>,
        slots: Slots<T>,
    ) -> Result<(), Error>;
}

/// The memory for the gradients of the inputs; `None` for gradients that are not wanted.
pub(crate) type Slots<'a, T> = Vec<Option<&'a mut [T]>>;
