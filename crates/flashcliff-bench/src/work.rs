//! The work of a case: the bytes and operations that the table of operators gives for it.

use flashcliff::{Dims, Dtype, Operator, TensorSpec};

use crate::Passes;

/// Whether most operations of an operator are those of products of matrices.
pub(crate) fn has_products_of_matrices(operator: &str) -> bool {
    ["fcgp_norm", "mv_linear", "mv_linear_sgp_norm"].contains(&operator)
}

/// The work of the passes of an operator at a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The least number of bytes that the passes move: each tensor once a pass.
    pub bytes: usize,
    /// The floating-point operations.
    pub flops: usize,
    /// The elements that the passes move.
    elements: usize,
}

impl Work {
    /// The work of an operator.
    pub fn of(operator: &Operator, dims: &Dims, dtype: Dtype, passes: Passes) -> Self {
        let elements = |spec: &TensorSpec| spec.shape(dims).iter().product::<usize>();
        let inputs: usize = operator.inputs().iter().map(elements).sum();
        let output = elements(operator.output());
        let cost = operator.cost(dims);
        let (elements, flops) = match passes {
            Passes::Forward => (inputs + output, cost.forward),
            // The backward pass reads the inputs and the gradient of the output, and writes the gradients of the inputs.
            Passes::Both => (3 * inputs + 2 * output, cost.forward + cost.backward),
        };
        Self {
            bytes: elements * dtype.bytes(),
            flops,
            elements,
        }
    }

    /// Operations, and elements that are loaded or stored.
    pub fn units(&self) -> f64 {
        self.flops as f64 + self.elements as f64
    }
}
