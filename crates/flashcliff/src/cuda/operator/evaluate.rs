//! Passes into new memory, for tests and programs that do not have their own tensors.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::Operator;
use crate::Error;
use crate::cuda::array::{self, Array};
use crate::cuda::dtype::Dtypes;
use crate::cuda::room::SizedCall;
use crate::cuda::tensor::{Scratch, Tensor};
use crate::operator::{Dims, Pass};

/// The results of [`Operator::evaluate`].
#[derive(Debug)]
pub struct Evaluation {
    /// The output.
    pub output: Array,
    /// The values that the backward pass reads, as a vector of the arithmetic type.
    pub saved: Array,
}

impl Operator {
    /// Runs [`Self::forward`] into new memory of the stream.
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::OutOfMemory`] with the largest batch that fits.
    pub fn evaluate(
        &self,
        stream: &Arc<CudaStream>,
        inputs: &[Tensor<'_>],
    ) -> Result<Evaluation, Error> {
        let (dims, dtypes) = self.checks().inputs(inputs)?;
        let evaluated = self.evaluate_as(stream, inputs, dims, dtypes);
        evaluated.map_err(|error| {
            let call = SizedCall {
                dims: &dims,
                dtypes,
                pass: Pass::Forward,
                gradients: None,
            };
            self.explained(error, stream, &call)
        })
    }

    fn evaluate_as(
        &self,
        stream: &Arc<CudaStream>,
        inputs: &[Tensor<'_>],
        dims: Dims,
        dtypes: Dtypes,
    ) -> Result<Evaluation, Error> {
        let shape = self.operator().output_shape(&dims);
        let mut output = Array::zeros(stream, dtypes.lanes, &shape)?;
        let saved_len = [self.saved_len(&dims, dtypes)];
        let mut saved = Array::zeros(stream, dtypes.arithmetic(), &saved_len)?;
        let bytes = self.workspace_bytes(&dims, Pass::Forward, dtypes)?;
        let mut workspace = array::scratch(stream, bytes)?;
        self.forward(
            stream,
            inputs,
            output.view_mut()?,
            Some(saved.view_mut()?),
            Some(Scratch::new(&mut workspace)),
        )?;
        Ok(Evaluation { output, saved })
    }

    /// Runs [`Self::backward`] into new memory of the stream. Returns the gradients of all inputs, in order.
    ///
    /// # Errors
    /// The errors of [`Self::backward`]; [`Error::OutOfMemory`] with the largest batch that fits.
    pub fn gradients(
        &self,
        stream: &Arc<CudaStream>,
        inputs: &[Tensor<'_>],
        evaluation: &Evaluation,
        grad_output: Tensor<'_>,
    ) -> Result<Vec<Array>, Error> {
        let (dims, dtypes) = self.checks().inputs(inputs)?;
        let sizes = (dims, dtypes);
        let gradients = self.gradients_as(stream, inputs, evaluation, grad_output, sizes);
        gradients.map_err(|error| {
            let call = SizedCall {
                dims: &dims,
                dtypes,
                pass: Pass::Backward,
                gradients: None,
            };
            self.explained(error, stream, &call)
        })
    }

    fn gradients_as(
        &self,
        stream: &Arc<CudaStream>,
        inputs: &[Tensor<'_>],
        evaluation: &Evaluation,
        grad_output: Tensor<'_>,
        (dims, dtypes): (Dims, Dtypes),
    ) -> Result<Vec<Array>, Error> {
        let grads: Result<Vec<Array>, Error> = inputs
            .iter()
            .map(|input| Array::zeros(stream, input.dtype(), input.shape()))
            .collect();
        let mut grads = grads?;
        let mut views = Vec::with_capacity(grads.len());
        for grad in &mut grads {
            views.push(Some(grad.view_mut()?));
        }
        let bytes = self.workspace_bytes(&dims, Pass::Backward, dtypes)?;
        let mut workspace = array::scratch(stream, bytes)?;
        self.backward(
            stream,
            inputs,
            evaluation.output.view()?,
            Some(evaluation.saved.view()?),
            grad_output,
            &mut views,
            Some(Scratch::new(&mut workspace)),
        )?;
        Ok(grads)
    }
}
