//! Core operators as differentiable candle operations.
//!
//! candle's custom operations take at most three inputs and keep no state. [`apply`] has neither limit. It computes the
//! output first, then records a node that holds inputs, output and saved rows. The backward pass of the node computes
//! the gradients of all inputs in one call of the core. (`node` explains how more than three gradients leave a node.)
//!
//! * `function` - the computation of a node, on slices.
//! * `operator` - a core operator as such a function, by itself or with options for GPUs.
//! * `network` - a described network, such as a layer or a whole model, as one node.
//! * `rotor` - the maps of rotors as operators, and the layer of versors.
//! * `constants` - indices on a device, made once.
//! * `gpu` - functions on GPUs.
//! * `node` - puts functions into candle's graph.
//! * `once` - gradients that cannot be differentiated again; `gradients` - those that can.
//! * `recomputed` - functions that run again in the backward pass.
//! * `in_place` - changes of tensors on the CPU.

pub(crate) mod constants;
pub(crate) mod function;
pub(crate) mod gpu;
mod gradients;
pub(crate) mod graphs;
pub(crate) mod in_place;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod once;
pub(crate) mod operator;
mod recomputed;
pub(crate) mod rotor;
mod scalar;

use std::sync::Arc;

use candle_core::Tensor;
use flashcliff::Operator;

pub use flashcliff_network::scratch::release_scratch;
pub use gradients::gradients;
pub use once::first_order;
pub use recomputed::recomputed;
pub use scalar::Scalar;

use node::Argument;

pub(crate) use operator::{Core, WithOptions};

/// How an operator runs on a GPU. On the CPU it makes no difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuOptions {
    /// The largest number of bytes for the products of a block of rows in [`fcgp_norm`](crate::functional::fcgp_norm),
    /// the main part of its workspace, like `flashcliff::cuda::Operator::with_block_bytes`. A block has at least one
    /// row in any case. `None` takes the tuned value, or 256 MiB. Other operators have no blocks.
    pub block_bytes: Option<usize>,
}

impl GpuOptions {
    /// Sets [`block_bytes`](Self::block_bytes).
    #[must_use]
    pub const fn with_block_bytes(mut self, bytes: Option<usize>) -> Self {
        self.block_bytes = bytes;
        self
    }
}

/// Applies a core operator to candle tensors, differentiably.
///
/// The operator may be one of a program of your own ([`Operator::of`]). The inputs come in its own order
/// ([`Operator::inputs`] names them and their shapes). On the CPU all are `f32` or all are `f64`. On a GPU (feature
/// `cuda`) they may also be `bf16` or `f16`, with parameters in `f32` too. Inputs that are not contiguous are copied
/// first, on their device; others are read in place. Gradients are computed for the inputs that depend on a variable.
/// On a GPU the call does not wait, and copies nothing to the host.
///
/// The result has the bits of the core's result, and is as deterministic. There are further derivatives where candle
/// keeps the graph of [`gradients`](gradients()): [`first_order`] says what happens to a loss on gradients elsewhere.
///
/// # Errors
/// A wrong number of inputs, an unsupported type or device, mixed types or devices, and the core's errors about shapes;
/// on a GPU also the errors of `flashcliff::Operator::on_cuda`.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use flashcliff::{Algebra, ProductKind, Signature, ops};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
/// let product = ops::product(algebra, ProductKind::Geometric, None, None)?;
/// let x = Var::from_tensor(&Tensor::arange(0f32, 8., &Device::Cpu)?.reshape((8, 1, 1))?)?;
/// let square = flashcliff_candle::op::apply(&product, &[&x, &x])?;
/// let gradients = square.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&x).map(|g| g.dims().to_vec()), Some(vec![8, 1, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn apply(op: &Operator, inputs: &[&Tensor]) -> candle_core::Result<Tensor> {
    Ok(node::apply(&Arc::new(op.clone()), &whole(inputs))?)
}

/// Does the same as [`apply`], with options for GPUs.
///
/// # Errors
/// The errors of [`apply`].
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use flashcliff::ops::{self, ProductOptions};
/// use flashcliff::{Algebra, Signature};
/// use flashcliff_candle::op::{GpuOptions, apply_with};
///
/// let algebra = Algebra::new(Signature::new(3, 0, 0)?)?;
/// let product = ops::fcgp_norm(algebra, &ProductOptions::default())?;
/// let x = Tensor::ones((8, 4, 2), DType::F32, &Device::Cpu)?;
/// let w = Tensor::ones((20, 2, 3), DType::F32, &Device::Cpu)?;
/// let options = GpuOptions::default().with_block_bytes(Some(32 << 20));
/// let output = apply_with(&product, &options, &[&x, &x, &w])?;
/// assert_eq!(output.dims(), [8, 4, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn apply_with(
    op: &Operator,
    options: &GpuOptions,
    inputs: &[&Tensor],
) -> candle_core::Result<Tensor> {
    let op = WithOptions::new(op.clone(), *options);
    Ok(node::apply(&Arc::new(op), &whole(inputs))?)
}

fn whole<'a>(inputs: &[&'a Tensor]) -> Vec<Argument<'a>> {
    let inputs = inputs.iter();
    inputs.map(|tensor| Argument::whole(tensor)).collect()
}
