//! Gradients that can be differentiated again.

use candle_core::{Result, Tensor};

use super::once;
use crate::Error;

/// The gradients of a scalar by some tensors, as tensors that can be differentiated again: forces are the gradients
/// of an energy by positions, with the sign changed. A tensor on which the scalar does not depend has a gradient of
/// zeros.
///
/// candle keeps the graph of gradients only where the variable `CANDLE_GRAD_DO_NOT_DETACH` of the environment is 1
/// when a thread first runs a backward pass: set it before the program starts, or in `.cargo/config.toml` under
/// `[env]`. Backward passes then hold more memory. The orders of derivatives are
///
/// | | |
/// |---|---|
/// | operations of candle, [operators](crate::functional), maps of rotors, layers of versors | all |
/// | layers that are one node: steerable products, embeddings of points | all |
/// | models that are one node: models of point sets and of bodies, steps of transformers without attention | all |
/// | attention in layers and transformers, also with distances of points | two |
/// | masks whose numbers depend on variables | one |
/// | what runs again in the backward pass: [`recomputed`](super::recomputed()), gradient checkpointing | one |
///
/// A loss on the gradients of one node runs its forward pass and the first gradients again, within a network of
/// second order. A loss on a last gradient is [`Error::SecondDerivative`], which names what ends there; an order that
/// kernels have no room for is an error of the core.
///
/// # Errors
/// [`Error::DetachedGradients`] where candle does not keep the graph; the errors of candle.
///
/// ```no_run
/// use candle_core::{DType, Device, Var};
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_candle::{functional, op};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
/// let positions = Var::randn(0f32, 1.0, (8, 5, 1), &Device::Cpu)?;
/// let energy = functional::norm(algebra, &positions)?.sum_all()?;
/// let forces = op::gradients(&energy, &[&positions])?.remove(0).neg()?;
/// // A loss on forces has gradients.
/// let loss = forces.sqr()?.sum_all()?;
/// assert!(loss.backward()?.get(&positions).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gradients(of: &Tensor, by: &[&Tensor]) -> Result<Vec<Tensor>> {
    if !once::keeps_graph() {
        return Err(Error::DetachedGradients.into());
    }
    let found = of.backward()?;
    let gradient = |tensor: &&Tensor| match found.get(tensor) {
        Some(gradient) => Ok(gradient.clone()),
        None => tensor.zeros_like(),
    };
    by.iter().map(gradient).collect()
}
