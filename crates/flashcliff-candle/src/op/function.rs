//! The computation of one node of a graph, on slices and without candle types.

use std::sync::Arc;

use flashcliff::{Element, Pass, memory};

use super::Scalar;
use super::network::NetworkFunction;
use super::operator::WithOptions;
use crate::Error;
use crate::timeline::{self, Operation};

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

    /// A pass for a timeline; `None` if the parts of the function report themselves. `wanted` says for each input
    /// whether its gradient is computed.
    fn operation(
        &self,
        shapes: &[Vec<usize>],
        output: &[usize],
        pass: Pass,
        wanted: &[bool],
    ) -> Option<Operation> {
        let (name, dtype) = (self.name(), <T as Element>::DTYPE);
        Some(Operation::of_function(
            name, shapes, output, dtype, pass, wanted,
        ))
    }

    /// The gradient, if it can be differentiated again.
    fn derived(&self) -> Option<Derived> {
        None
    }

    /// Checks that there is room for the result, and for what the pass makes besides, if that is known.
    ///
    /// # Errors
    /// [`flashcliff::Error::OutOfMemory`].
    fn check_room(&self, _: &[Array<T>], output: &[usize]) -> Result<(), Error> {
        check_room::<T>(self.name(), "output", output)
    }

    /// The shape of the result, after a check of the inputs' shapes.
    fn output_shape(&self, inputs: &[Array<T>]) -> Result<Vec<usize>, Error>;

    /// Writes every element of the result, whatever was there before. `wanted` says for each input whether its gradient is computed later.
    fn forward(
        &self,
        inputs: &[Array<T>],
        output: &mut [T],
        wanted: &[bool],
    ) -> Result<Self::Saved, Error>;

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

/// A gradient that can be differentiated again.
pub(crate) enum Derived {
    /// An operator.
    Operator(WithOptions),
    /// The gradients of this network, which are a network too.
    Network(NetworkFunction),
}

/// The memory for the gradients of the inputs; `None` for gradients that are not wanted.
pub(crate) type Slots<'a, T> = Vec<Option<&'a mut [T]>>;

/// Checks that there is room for a tensor of a function.
///
/// # Errors
/// [`flashcliff::Error::OutOfMemory`].
pub(super) fn check_room<T: Scalar>(
    name: &str,
    tensor: &str,
    shape: &[usize],
) -> Result<(), Error> {
    let elements = shape.iter().map(|&axis| axis as u128).product::<u128>();
    let bytes = elements * <T as Element>::DTYPE.bytes() as u128;
    if bytes < memory::THRESHOLD {
        return Ok(());
    }
    let remedy = |_| "make the batch smaller".to_owned();
    Ok(memory::check(
        &format!("{name}: the {tensor} {shape:?}"),
        bytes,
        remedy,
    )?)
}

/// Runs a pass of a function, which is an operation of a timeline if its parts are not.
pub(super) fn report<R>(
    operation: impl FnOnce() -> Option<Operation>,
    work: impl FnOnce() -> R,
) -> R {
    match timeline::is_recording().then(operation).flatten() {
        Some(operation) => timeline::within(|| Arc::new(operation), work),
        None => work(),
    }
}
