//! What implements an operator on a GPU.

use std::fmt;
use std::sync::Arc;

use flashcliff_sys as sys;

use crate::Error;
use crate::cuda::call::{Call, Gradients, Kept};
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::MatmulPrecision;
use crate::operator::lane::cuda::Lanes;
use crate::operator::linear::cuda::Linear;
use crate::operator::{Dims, Pass};

/// An operator on a GPU. [`Operator`](super::Operator) has checked a call, and made the context of its tensors current, before it launches
/// a pass.
///
/// Functions that are not stated answer for an operator that needs neither its own kernel nor a workspace, and of which
/// a packing keeps nothing.
pub(crate) trait OnCuda: fmt::Debug + Send + Sync {
    /// Loads the kernels of both passes on the current device, and chooses the algorithms of their matrix products, for tensors with the
    /// alignment of allocations.
    fn prepare(&self, _: &Dims, _: Dtypes) -> Result<(), Error> {
        Ok(())
    }

    /// The bytes of workspace of a pass beside what a packing keeps.
    fn workspace_bytes(
        &self,
        _: &Dims,
        _: Pass,
        _: Dtypes,
        _: &Gradients,
        _: &Kept,
    ) -> Result<usize, Error> {
        Ok(0)
    }

    /// Launches the computation of the results that are wanted. The first one is the output of the call too.
    ///
    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current.
    unsafe fn run(&self, call: &Call, results: &Gradients) -> Result<(), Error>;

    /// Launches the computation of the gradients of the call that are wanted.
    ///
    /// # Safety
    /// The contract of [`Self::run`] holds.
    unsafe fn backward(&self, call: &Call) -> Result<(), Error>;

    /// Does the same as [`Self::backward`], but leaves the gradients of parameters as parts in the memory of a packing. Returns the partial
    /// sums of a product by rows, for [`add_up`](crate::operator::lane::cuda::add_up).
    ///
    /// # Safety
    /// The contract of [`Self::run`] holds.
    unsafe fn backward_in_parts(
        &self,
        call: &Call,
        _parts: u64,
    ) -> Result<sys::fc_partials, Error> {
        // SAFETY: the caller promises it.
        unsafe { self.backward(call) }.map(|()| sys::fc_partials::default())
    }

    /// The operator whose matrix products have another precision; `None` if that changes nothing.
    fn with_precision(&self, _: MatmulPrecision) -> Option<Arc<dyn OnCuda>> {
        None
    }

    /// The operator whose blocks of rows take so many bytes; `None` if it has no blocks.
    fn with_block_bytes(&self, _: usize) -> Option<Arc<dyn OnCuda>> {
        None
    }

    /// The operator as one lane program, if it is one: it takes strides, and a packing keeps the partial sums of its parameters.
    fn lanes(&self) -> Option<&Lanes> {
        None
    }

    /// The operator as one linear map, if it is one: a packing keeps its weights.
    fn linear(&self) -> Option<&Linear> {
        None
    }
}
