//! The references of operators, which stand in their files, for the cases of tests.

use flashcliff::Dims;
use flashcliff_program::reference::{self, Basis, Number};

use crate::cases::Spec;

/// The output of an operator, in its layout.
pub(crate) fn evaluate<N: Number>(
    basis: &Basis,
    spec: &Spec,
    dims: &Dims,
    inputs: &[Vec<N>],
) -> Vec<N> {
    let sizes = [dims.batch, dims.in_channels, dims.out_channels];
    reference::evaluate(spec.entry(), &spec.settings(), basis, sizes, inputs)
}
