//! A build for the CPU: there is no network on a GPU.

use std::convert::Infallible;

use flashcliff_network::Machine;

use super::super::tensors::{Given, Gradients};
use super::{CudaNetworkCall, CudaNetworkSizes, Request};
use crate::cuda::no_cuda;
use crate::status::Failure;

/// A network on a GPU, which cannot exist.
pub(super) struct Planned(Infallible);

impl Planned {
    pub(super) fn new(_: &Request<'_>) -> Result<Self, Failure> {
        Err(no_cuda())
    }

    pub(super) fn sizes(&self) -> CudaNetworkSizes {
        match self.0 {}
    }

    pub(super) fn explain(&self, _: Option<&Machine>) -> Result<String, Failure> {
        match self.0 {}
    }

    /// # Safety
    /// The function has no requirements.
    pub(super) unsafe fn run(&self, _: &CudaNetworkCall, _: &Given<'_>) -> Result<(), Failure> {
        match self.0 {}
    }

    /// # Safety
    /// The function has no requirements.
    pub(super) unsafe fn backward(
        &self,
        _: &CudaNetworkCall,
        _: &Given<'_>,
        _: &Gradients<'_>,
    ) -> Result<(), Failure> {
        match self.0 {}
    }
}
