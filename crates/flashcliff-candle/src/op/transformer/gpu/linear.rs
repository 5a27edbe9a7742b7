//! Linear layers as one matrix product.

use candle_core::{Result, Tensor};

use super::Kernels;
use super::stages::Gradients;
use crate::op::transformer::linear::{Kind, Linear};
use crate::op::transformer::{BLADES, Channels};

impl Linear {
    /// The outputs of all layers side by side, and the matrix.
    pub(super) fn on_gpu(&self, x: &Tensor, parameters: &[Tensor]) -> Result<(Tensor, Tensor)> {
        let dense = self.matrix_and_bias(parameters)?;
        let inputs = self.input().width();
        let (matrix, bias) = (dense.narrow(0, 0, inputs)?, dense.narrow(0, inputs, 1)?);
        Ok((x.matmul(&matrix)?.broadcast_add(&bias)?, matrix))
    }

    /// The gradient of the input of [`Self::on_gpu`], if it is wanted. The parameters begin at a position among all.
    pub(super) fn gradient_on_gpu(
        &self,
        kernels: &dyn Kernels,
        x: &Tensor,
        matrix: &Tensor,
        g: &Tensor,
        parameter: usize,
        to: &mut Gradients,
    ) -> Result<Option<Tensor>> {
        if to.wants_parameters {
            let found = self.parameter_gradients(kernels, x, g)?;
            for (to, found) in to.parameters[parameter..].iter_mut().zip(found) {
                *to = Some(found);
            }
        }
        match to.wants_input {
            false => Ok(None),
            true => g.matmul(&matrix.t()?).map(Some),
        }
    }

    /// The gradients of the parameters, in order. Most are parts of that of the matrix.
    fn parameter_gradients(
        &self,
        kernels: &dyn Kernels,
        x: &Tensor,
        g: &Tensor,
    ) -> Result<Vec<Tensor>> {
        let of_matrix = x.t()?.matmul(g)?;
        let weights = self.weight_gradients(&of_matrix)?;
        let (input, made) = (self.input, self.made());
        let first_scalar = BLADES * made.multivectors;
        let mut runs = vec![(0, made.multivectors)];
        if made.scalars > 0 {
            runs.push((first_scalar, first_scalar + made.scalars));
        }
        let sums = kernels.column_sums(g, &runs)?;
        let of_blades = of_matrix.narrow(0, 0, input.multivectors)?;
        let of_scalars = of_matrix.narrow(0, BLADES * input.multivectors, input.scalars)?;
        let mut found = Vec::new();
        let (mut weight, mut first) = (0, Channels::default());
        for &layer in &self.layers {
            let blades = (first.multivectors, layer.multivectors);
            let scalars = (first_scalar + first.scalars, layer.scalars);
            let columns = |x: &Tensor, (first, count)| x.narrow(1, first, count)?.t();
            for (kind, shape) in self.of_layer(layer) {
                found.push(match kind {
                    Kind::Weight => {
                        let count = shape.iter().product();
                        let own = weights.narrow(0, weight, count)?;
                        weight += count;
                        own.reshape(shape)?
                    }
                    Kind::BladeBias => sums.narrow(0, blades.0, blades.1)?.reshape(shape)?,
                    Kind::ScalarBias => sums.narrow(0, scalars.0, scalars.1)?.reshape(shape)?,
                    Kind::ScalarsToBlades => columns(&of_scalars, blades)?,
                    Kind::BladesToScalars => columns(&of_blades, scalars)?,
                    Kind::ScalarsToScalars => columns(&of_scalars, scalars)?,
                });
            }
            first.multivectors += layer.multivectors;
            first.scalars += layer.scalars;
        }
        Ok(found)
    }
}
