//! A build for the CPU: there is no operator on a GPU.

use std::convert::Infallible;
use std::ffi::c_void;

use super::{Call, CudaPlan};
use crate::status::Failure;

/// An operator on a GPU, which cannot exist.
pub(crate) struct Bound(Infallible);

/// The error of a library that was asked for a GPU.
pub(crate) fn no_cuda() -> Failure {
    Failure::NoCuda(
        "expected a library with CUDA, got one for the CPU; install one by `cargo xtask install --prefix DIR --cuda`, \
         which needs nvcc"
            .to_owned(),
    )
}

impl Bound {
    pub(crate) fn new(_: &flashcliff::Operator, _: usize, _: bool) -> Result<Self, Failure> {
        Err(no_cuda())
    }

    pub(crate) fn operator(&self) -> &flashcliff::Operator {
        match self.0 {}
    }

    pub(crate) fn plan(&self, _: &Call<'_>) -> Result<CudaPlan, Failure> {
        match self.0 {}
    }

    /// # Safety
    /// The function has no requirements.
    pub(crate) unsafe fn forward(
        &self,
        _: &Call<'_>,
        _: *mut c_void,
        _: *mut c_void,
    ) -> Result<(), Failure> {
        match self.0 {}
    }

    /// # Safety
    /// The function has no requirements.
    pub(crate) unsafe fn backward(
        &self,
        _: &Call<'_>,
        _: [*const c_void; 3],
        _: &[*mut c_void],
    ) -> Result<(), Failure> {
        match self.0 {}
    }
}
