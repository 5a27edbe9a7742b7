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

/// What a forward pass hands back.
pub(crate) struct Forward<T, S> {
    pub(crate) output: Vec<T>,
    pub(crate) shape: Vec<usize>,
    /// What the backward pass needs beyond inputs and output.
    pub(crate) saved: S,
}

/// A differentiable function of several arrays with one result.
pub(crate) trait Function<T: Scalar>: Send + Sync + 'static {
    /// What the backward pass needs beyond inputs and output. Lives as long as the graph.
    type Saved: Send + Sync + 'static;

    /// Name, for error messages.
    fn name(&self) -> &str;

    /// Number of inputs.
    fn arity(&self) -> usize;

    /// Computes the result.
    fn forward(&self, inputs: &[Array<T>]) -> Result<Forward<T, Self::Saved>, Error>;

    /// Computes the gradients of the inputs marked in `wanted`, in the order of the inputs; the other entries are `None`.
    fn backward(
        &self,
        inputs: &[Array<T>],
        output: Array<T>,
        saved: &Self::Saved,
        grad_output: Array<T>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Vec<T>>>, Error>;
}
