//! The work of a case: the bytes and operations that the table of operators gives for it.

use flashcliff::{Dims, Dtype, Operator, Pass};

use crate::Passes;

/// The work of the passes of an operator at a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The least number of bytes that the passes move: each tensor once a pass.
    pub bytes: usize,
    /// The floating-point operations.
    pub flops: usize,
}

impl Work {
    /// The work of an operator.
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
        }
    }
}
