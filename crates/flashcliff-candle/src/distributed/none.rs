//! The communicator of a build without CUDA, which there is none of.

use candle_core::{Device, Tensor};

use super::links::Links;
use crate::Error;
use crate::objective::Objective;

/// Sums over GPUs. No value of it exists: the crate was built without the feature `cuda`.
#[derive(Debug)]
pub enum Communicator {}

impl Communicator {
    /// Checks that there is NCCL.
    ///
    /// # Errors
    /// [`Error::BuiltWithoutCuda`], always.
    pub fn check() -> Result<(), Error> {
        Err(Error::BuiltWithoutCuda)
    }

    /// A communicator of all ranks.
    ///
    /// # Errors
    /// [`Error::BuiltWithoutCuda`], always.
    pub fn new(_: &Links, _: &Device) -> Result<Self, Error> {
        Err(Error::BuiltWithoutCuda)
    }

    /// Fills tensors on all ranks with their values on rank 0.
    ///
    /// # Errors
    /// None: there is no communicator.
    pub fn broadcast(&self, _: &[Tensor]) -> Result<(), Error> {
        match *self {}
    }

    /// Computes a share of a batch, and makes the results their means over the ranks.
    ///
    /// # Errors
    /// None: there is no communicator.
    pub fn evaluate(&self, _: &mut Objective, _: &[Tensor], _: usize) -> Result<Tensor, Error> {
        match *self {}
    }

    /// Makes a loss, and the gradients of an objective, their means over the ranks.
    ///
    /// # Errors
    /// None: there is no communicator.
    pub fn average(&self, _: &mut Objective, _: &Tensor) -> Result<(), Error> {
        match *self {}
    }
}
