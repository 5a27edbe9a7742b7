//! The functions of operators, compiled for each type of elements.

use super::{Dims, Evaluation, Given, Operator, Pass};
use crate::compiled::compiled_here;
use crate::{Error, Tensor, TensorMut, threads};

compiled_here! {
    /// The functions of [`Operator`].
    trait Compiled {
        fn workspace_len(of: &Operator, dims: &Dims, pass: Pass) -> usize {
            of.workspace_len_here::<Self>(dims, pass)
        }

        fn forward(
            of: &Operator,
            inputs: &[Tensor<'_, Self>],
            output: TensorMut<'_, Self>,
            saved: &mut [Self],
            workspace: &mut [Self],
        ) -> Result<(), Error> {
            threads::steady(|| of.forward_here(inputs, output, saved, workspace))
        }

        fn backward(
            of: &Operator,
            given: &Given<'_, Self>,
            grads: &mut [Option<TensorMut<'_, Self>>],
            workspace: &mut [Self],
        ) -> Result<(), Error> {
            threads::steady(|| of.backward_here(given, grads, workspace))
        }

        fn run(
            of: &Operator,
            inputs: &[Tensor<'_, Self>],
            outputs: &mut [Option<TensorMut<'_, Self>>],
            workspace: &mut [Self],
        ) -> Result<(), Error> {
            threads::steady(|| of.run_here(inputs, outputs, workspace))
        }

        fn results(of: &Operator, inputs: &[Tensor<'_, Self>]) -> Result<Vec<Vec<Self>>, Error> {
            threads::steady(|| of.results_here(inputs))
        }

        fn evaluate(of: &Operator, inputs: &[Tensor<'_, Self>]) -> Result<Evaluation<Self>, Error> {
            threads::steady(|| of.evaluate_here(inputs))
        }

        fn gradients(
            of: &Operator,
            inputs: &[Tensor<'_, Self>],
            evaluation: &Evaluation<Self>,
            grad_output: Tensor<'_, Self>,
        ) -> Result<Vec<Vec<Self>>, Error> {
            threads::steady(|| of.gradients_here(inputs, evaluation, grad_output))
        }
    }
}
