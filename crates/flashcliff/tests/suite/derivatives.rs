//! Derivatives of the reference.

use flashcliff::Dims;

use crate::cases::Spec;
use crate::reference::evaluate;
use flashcliff_program::reference::Basis;
use flashcliff_program::reference::{Dual, Number};

/// An operator at a point, and the gradient of its output.
pub(crate) struct Derivatives<'a> {
    pub(crate) basis: &'a Basis,
    pub(crate) spec: &'a Spec,
    pub(crate) dims: &'a Dims,
    pub(crate) inputs: &'a [Vec<f64>],
    pub(crate) grad_output: &'a [f64],
}

impl Derivatives<'_> {
    /// The derivative of `<grad_output, o>` as the inputs move along a direction.
    pub(crate) fn along<N: Number>(&self, direction: &[Vec<f64>]) -> N {
        let dual = |(&x, &v): (&f64, &f64)| Dual {
            value: N::input(x),
            slope: N::input(v),
        };
        let inputs: Vec<Vec<Dual<N>>> = self
            .inputs
            .iter()
            .zip(direction)
            .map(|(x, v)| x.iter().zip(v).map(dual).collect())
            .collect();
        let output = evaluate(self.basis, self.spec, self.dims, &inputs);
        let terms = output.iter().zip(self.grad_output);
        let terms: Vec<N> = terms.map(|(o, &g)| o.slope.mul(N::input(g))).collect();
        N::sum(&terms)
    }

    /// The gradient of every element of every input, by the derivative in its direction.
    pub(crate) fn gradients<N: Number>(&self) -> Vec<Vec<N>> {
        let mut direction: Vec<Vec<f64>> = self.inputs.iter().map(|x| vec![0.0; x.len()]).collect();
        let mut grads = Vec::new();
        for tensor in 0..self.inputs.len() {
            let mut grad = Vec::new();
            for i in 0..self.inputs[tensor].len() {
                direction[tensor][i] = 1.0;
                grad.push(self.along(&direction));
                direction[tensor][i] = 0.0;
            }
            grads.push(grad);
        }
        grads
    }
}
