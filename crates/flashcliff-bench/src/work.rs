//! What runs: calls with their bytes and operations, and operators with their tensors.

use flashcliff::{Dims, Dtype, Operator, Pass};

use crate::{Case, Error, Passes};

/// What a call moves and computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The least number of bytes that it moves: each tensor once a pass.
    pub bytes: usize,
    /// Its floating-point operations.
    pub flops: usize,
    /// The type that it computes in.
    pub dtype: Dtype,
    /// Whether most of the operations belong to matrix products.
    pub has_matrix_products: bool,
}

impl Call {
    /// The passes of an operator as one call.
    pub fn of(operator: &Operator, dims: &Dims, dtype: Dtype, passes: Passes) -> Self {
        let cost = operator.cost(dims);
        let moved = |pass| operator.moved_elements(dims, pass);
        let (elements, flops) = match passes {
            Passes::Forward => (moved(Pass::Forward), cost.forward),
            Passes::Both => (
                moved(Pass::Forward) + moved(Pass::Backward),
                cost.forward + cost.backward,
            ),
        };
        Self {
            bytes: elements * dtype.bytes(),
            flops,
            dtype,
            has_matrix_products: operator.has_matrix_products(),
        }
    }
}

/// An operator with all tensors that it reads and writes, on a device.
pub trait Buffers {
    /// The passes as one call.
    fn call(&self, passes: Passes) -> Call;

    /// Runs the passes.
    ///
    /// # Errors
    /// The errors of the library.
    fn run(&mut self, passes: Passes) -> Result<(), Error>;

    /// Runs both passes once and compares them with the formula. Returns the largest relative difference of the output.
    ///
    /// # Errors
    /// [`Error::WrongResult`]; the errors of the library.
    fn check(&mut self, case: &Case) -> Result<f64, Error>;

    /// The same tensors in other memory, where that makes a difference to times.
    fn moved(&self) -> Option<Box<dyn Buffers>>;
}
