//! Errors of a build for the CPU if tensors are on a GPU.

use flashcliff::{Error, Operator, Pass};
use pyo3::prelude::*;

use crate::convert::{Gpu, Plan, View};
use crate::error::CudaError;
use crate::host::{Given, Gradients};
use crate::runs::{Run, RunPlan};

/// The GPUs of an operator: none in this build.
#[derive(Debug)]
pub(crate) struct Devices(());

impl Devices {
    pub(crate) fn new(_: Option<usize>) -> Self {
        Self(())
    }

    pub(crate) fn plan(
        &self,
        operator: &Operator,
        _: &[View],
        _: Pass,
        _: Gpu,
    ) -> Result<Plan, Error> {
        Err(error(operator))
    }

    pub(crate) fn prepare(
        &self,
        operator: &Operator,
        _: &[View],
        _: bool,
        _: Gpu,
    ) -> Result<(), Error> {
        Err(error(operator))
    }

    pub(crate) fn plan_run(
        &self,
        operator: &Operator,
        _: &[View],
        _: Gpu,
    ) -> Result<RunPlan, Error> {
        Err(error(operator))
    }

    /// # Safety
    /// The function has no requirements.
    pub(crate) unsafe fn run(&self, operator: &Operator, _: &Run, _: Gpu) -> Result<(), Error> {
        Err(error(operator))
    }

    pub(crate) fn no_room(
        &self,
        operator: &Operator,
        _: &[View],
        _: Pass,
        _: Option<&[bool]>,
        _: Option<u64>,
        _: Gpu,
    ) -> Result<Error, Error> {
        Err(error(operator))
    }

    /// # Safety
    /// The function has no requirements.
    pub(crate) unsafe fn forward(
        &self,
        operator: &Operator,
        _: &Given,
        _: Gpu,
    ) -> Result<(), Error> {
        Err(error(operator))
    }

    /// # Safety
    /// The function has no requirements.
    pub(crate) unsafe fn backward(
        &self,
        operator: &Operator,
        _: &Given,
        _: &Gradients,
        _: Gpu,
    ) -> Result<(), Error> {
        Err(error(operator))
    }
}

fn error(operator: &Operator) -> Error {
    Error::UnsupportedOnCuda {
        operator: operator.name().to_owned(),
        reason: WITHOUT.to_owned(),
    }
}

const WITHOUT: &str = "this build of flashcliff has no CUDA kernels; install it again on a machine with \
     nvcc 12.8 or later (set CUDA_HOME, or run `cargo xtask cuda-toolkit` first) and FLASHCLIFF_CUDA=1, \
     or move the tensors to the CPU";

/// Memory of a GPU, which this build cannot have.
pub(crate) enum Memory {}

impl Memory {
    pub(crate) fn new(_: Python<'_>, _: usize, _: usize) -> PyResult<Self> {
        Err(CudaError::new_err(WITHOUT))
    }

    pub(crate) fn address(&self) -> usize {
        match *self {}
    }

    pub(crate) fn synchronize(&self, _: Python<'_>) -> PyResult<()> {
        match *self {}
    }
}
