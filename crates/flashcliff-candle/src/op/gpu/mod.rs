//! Functions on GPUs.
//!
//! A core operator is one node on a GPU, as on the CPU, and so is a network. Training of whole models goes past candle's graph: see
//! [`crate::objective`].
//!
//! * `operator` - a core operator as a node.
//! * `network` - a network as a node.
//! * `rotor` - the layer of versors, composed of operators and a matrix product. It also runs on the CPU, where tests compare it.
//! * `memory` - views of candle's memory for the CUDA library.
//! * `library` - candle's devices for the CUDA library.

#[cfg(feature = "cuda")]
pub(crate) mod library;
#[cfg(feature = "cuda")]
pub(crate) mod memory;
#[cfg(feature = "cuda")]
pub(super) mod network;
#[cfg(feature = "cuda")]
mod operator;
mod rotor;

use std::sync::Arc;

use candle_core::Tensor;

use super::node::Argument;
use crate::Error;

/// A function that runs on GPUs.
pub(crate) trait OnGpu {
    /// Whether the function is composed of others here, and has their derivatives. It runs so on the CPU too where
    /// candle keeps the graph of gradients.
    const IS_COMPOSED: bool = false;

    /// Applies the function to as many tensors as it takes, all on one GPU, differentiably.
    fn apply_on_gpu(self: &Arc<Self>, arguments: &[Argument]) -> Result<Tensor, Error>;
}

/// Without the feature `cuda` candle has no tensors on a GPU.
#[cfg(not(feature = "cuda"))]
impl<C: super::operator::Core> OnGpu for C {
    fn apply_on_gpu(self: &Arc<Self>, _: &[Argument]) -> Result<Tensor, Error> {
        Err(Error::BuiltWithoutCuda)
    }
}

/// The same holds.
#[cfg(not(feature = "cuda"))]
impl OnGpu for super::network::NetworkFunction {
    fn apply_on_gpu(self: &Arc<Self>, _: &[Argument]) -> Result<Tensor, Error> {
        Err(Error::BuiltWithoutCuda)
    }
}
