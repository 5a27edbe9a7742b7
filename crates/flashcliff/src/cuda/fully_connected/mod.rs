//! The fully connected product: matrix products whose left operands are path products of `x` and `y`.
//!
//! It has two forms. Kernels for [`tensor_cores`] form the left operands in registers; they exist for algebras
//! of up to 3 dimensions, and round operands to what tensor cores multiply. Everything else goes in blocks of
//! rows ([`blocked`]): the left operands of a block are written to memory, for cuBLASLt to multiply.

mod blocked;
mod blocks;
mod products;
mod tensor_cores;
mod workspace;

use flashcliff_sys as sys;

use super::call::{Call, Gradients};
use super::device::Device;
use super::dtype::Dtypes;
use super::matmul::MatmulPrecision;
use crate::operator::{self, Dims, Pass};
use crate::{Algebra, Dtype, Error};
use blocked::Blocked;
use tensor_cores::TensorCores;

/// The product on a device.
#[derive(Clone, Debug)]
pub(super) struct FullyConnected {
    tensor_cores: Option<TensorCores>,
    blocked: Blocked,
    pub(super) precision: MatmulPrecision,
}

/// How a call is computed.
enum Form<'a> {
    TensorCores(&'a TensorCores, sys::fc_precision),
    Blocked(&'a Blocked, MatmulPrecision),
}

impl FullyConnected {
    pub(super) fn new(
        operator: &str,
        algebra: Algebra,
        product: &operator::FullyConnected,
        device: &Device,
    ) -> Result<Self, Error> {
        let tensor_cores = TensorCores::find(algebra, product);
        if tensor_cores.is_none() {
            // Without cuBLASLt there would be nothing; better to say so before the first call.
            device.blas()?;
        }
        Ok(Self {
            tensor_cores,
            blocked: Blocked::new(operator, algebra, product, device)?,
            precision: MatmulPrecision::default(),
        })
    }

    /// Tensor cores multiply 16-bit numbers exactly, and round others: those of `f32` if TF32 is asked for.
    fn form(&self, dtypes: Dtypes) -> Form<'_> {
        let precision = match (dtypes.lanes, self.precision) {
            (Dtype::Bf16, _) => Some(sys::fc_precision::FC_PRECISION_BF16),
            (Dtype::F16, _) => Some(sys::fc_precision::FC_PRECISION_F16),
            (Dtype::F32, MatmulPrecision::Tf32) => Some(sys::fc_precision::FC_PRECISION_TF32),
            _ => None,
        };
        match (&self.tensor_cores, precision) {
            (Some(product), Some(precision)) => Form::TensorCores(product, precision),
            _ => Form::Blocked(&self.blocked, self.precision),
        }
    }

    /// Loads the kernels of both passes on the current device, and chooses the algorithms of their products.
    pub(super) fn prepare(&self, dims: &Dims, dtypes: Dtypes) -> Result<(), Error> {
        match self.form(dtypes) {
            Form::TensorCores(product, precision) => product.prepare(precision),
            Form::Blocked(product, precision) => product.prepare(dims, dtypes, precision),
        }
    }

    pub(super) fn workspace_bytes(
        &self,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
    ) -> Result<usize, Error> {
        match self.form(dtypes) {
            Form::TensorCores(product, precision) => {
                product.workspace_bytes(dims, pass, dtypes, precision, grads)
            }
            Form::Blocked(product, _) => Ok(product.workspace_bytes(dims, pass, dtypes, grads)),
        }
    }

    /// # Safety
    /// The call is checked, its stream valid, and the context of its tensors current.
    pub(super) unsafe fn forward(&self, call: &Call) -> Result<(), Error> {
        // SAFETY: the caller's.
        unsafe {
            match self.form(call.dtypes) {
                Form::TensorCores(product, precision) => product.forward(call, precision),
                Form::Blocked(product, precision) => product.forward(call, precision),
            }
        }
    }

    /// # Safety
    /// As for [`Self::forward`].
    pub(super) unsafe fn backward(&self, call: &Call) -> Result<(), Error> {
        // SAFETY: the caller's.
        unsafe {
            match self.form(call.dtypes) {
                Form::TensorCores(product, precision) => product.backward(call, precision),
                Form::Blocked(product, precision) => product.backward(call, precision),
            }
        }
    }
}
