//! Linear layers as one matrix product.

use candle_core::{Result, Tensor};

use super::Kernels;
use super::stages::Gradients;
use crate::op::transformer::Channels;
use crate::op::transformer::linear::{Kind, Linear};

impl Linear {
    /// The outputs of all layers side by side, and the matrix.
    pub(super) fn on_gpu(
        &self,
        kernels: &dyn Kernels,
        x: &Tensor,
        parameters: &[Tensor],
    ) -> Result<(Tensor, Tensor)> {
        let dense = self.matrix_and_bias(kernels, parameters)?;
        let inputs = self.geometry.width(self.input());
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
        let weights = self.weight_gradients(kernels, &of_matrix)?;
        let (input, made) = (self.input, self.made());
        let blades = self.geometry.blades();
        let first_scalar = blades * made.multivectors;
        let biased = self.blades_of(Kind::BladeBias).iter();
        let of_blade = |blade: &usize| (blade * made.multivectors, (blade + 1) * made.multivectors);
        let mut runs: Vec<(usize, usize)> = biased.map(of_blade).collect();
        if made.scalars > 0 {
            runs.push((first_scalar, first_scalar + made.scalars));
        }
        let sums = kernels.column_sums(g, &runs)?;
        let of_scalars = of_matrix.narrow(0, blades * input.multivectors, input.scalars)?;
        let mut found = Vec::new();
        let (mut weight, mut first) = (0, Channels::default());
        for &layer in &self.layers {
            let channels = |blade: usize| {
                let first = blade * made.multivectors + first.multivectors;
                (first, layer.multivectors)
            };
            let scalars = (first_scalar + first.scalars, layer.scalars);
            let columns = |x: &Tensor, (first, count)| x.narrow(1, first, count)?.t();
            for (kind, shape) in self.of_layer(layer) {
                let own = self.blades_of(kind);
                found.push(match kind {
                    Kind::Weight => {
                        let count = shape.iter().product();
                        let own = weights.narrow(0, weight, count)?;
                        weight += count;
                        own.reshape(shape)?
                    }
                    Kind::BladeBias => {
                        let of = |blade| sums.narrow(0, channels(blade).0, channels(blade).1);
                        innermost(own, of)?.reshape(shape)?
                    }
                    Kind::ScalarBias => sums.narrow(0, scalars.0, scalars.1)?.reshape(shape)?,
                    Kind::ScalarsToBlades => {
                        // `[inputs, channels, blades]`
                        let of = |blade| of_scalars.narrow(1, channels(blade).0, channels(blade).1);
                        innermost(own, of)?.flatten_from(1)?.t()?
                    }
                    Kind::BladesToScalars => {
                        // `[outputs, channels, blades]`
                        let of = |blade: usize| {
                            let of_blade = (blade * input.multivectors, input.multivectors);
                            columns(&of_matrix.narrow(0, of_blade.0, of_blade.1)?, scalars)
                        };
                        innermost(own, of)?.flatten_from(1)?
                    }
                    Kind::ScalarsToScalars => columns(&of_scalars, scalars)?,
                });
            }
            first.multivectors += layer.multivectors;
            first.scalars += layer.scalars;
        }
        Ok(found)
    }
}

/// The tensors of blades side by side, blades innermost.
fn innermost(blades: &[usize], of: impl Fn(usize) -> Result<Tensor>) -> Result<Tensor> {
    let parts: Vec<Tensor> = blades
        .iter()
        .map(|&blade| of(blade))
        .collect::<Result<_>>()?;
    let axis = parts.first().map_or(0, Tensor::rank);
    Tensor::stack(&parts, axis)
}
