//! Scores and softmax between the kernels of heads.

use candle_core::{D, Result, Tensor};

use super::stages::{Given, Gradients};
use crate::op::transformer::attention::Attention;

/// Values that the backward pass of attention needs besides its input.
pub(super) struct Attended {
    /// The weights of distances, `[channels, heads]`.
    weights: Tensor,
    /// `[groups, queries, features]`
    query: Tensor,
    /// `[groups, items, features]`
    key: Tensor,
    /// `[groups, items, width]`
    value: Tensor,
    /// The shares of keys in queries, `[groups, queries, items]`.
    shares: Tensor,
}

impl Attention {
    /// The attended values of all heads.
    pub(super) fn on_gpu(
        &self,
        given: &Given,
        x: &Tensor,
        log_weights: &Tensor,
    ) -> Result<(Tensor, Attended)> {
        let weights = log_weights.exp()?.squeeze(1)?.t()?.contiguous()?;
        let [query, key, value] = given.kernels.heads(self, x, &weights)?;
        let query = self.grouped(given, &query)?;
        let (key, value) = (self.grouped(given, &key)?, self.grouped(given, &value)?);
        let scores = query.matmul(&key.t()?)?.affine(self.scale(), 0.0)?;
        let shares = candle_nn::ops::softmax_last_dim(&scores)?;
        let out = shares.matmul(&value)?;
        let width = out.dim(D::Minus1)?;
        let out = out.reshape(&self.merged_shape(given, width)[..])?;
        let output = given.kernels.merge(self, &out)?;
        let attended = Attended {
            weights,
            query,
            key,
            value,
            shares,
        };
        Ok((output, attended))
    }

    /// The gradient of the input of [`Self::on_gpu`].
    pub(super) fn gradient_on_gpu(
        &self,
        given: &Given,
        x: &Tensor,
        attended: &Attended,
        g: &Tensor,
        parameter: usize,
        to: &mut Gradients,
    ) -> Result<Tensor> {
        let Attended {
            weights,
            query,
            key,
            value,
            shares,
        } = attended;
        let (groups, queries, _) = query.dims3()?;
        let width = value.dim(D::Minus1)?;
        let shape = self.merged_shape(given, width);
        let of_out = given.kernels.merge_gradient(self, g, shape)?;
        let of_out = of_out.reshape((groups, queries, width))?;
        let of_value = shares.t()?.matmul(&of_out)?;
        let products = (shares * of_out.matmul(&value.t()?)?)?;
        let sums = products.sum_keepdim(D::Minus1)?;
        let of_scores = (products - shares.broadcast_mul(&sums)?)?.affine(self.scale(), 0.0)?;
        let of_query = of_scores.matmul(key)?;
        let of_key = of_scores.t()?.matmul(query)?;
        let features = [
            self.ungrouped(given, &of_query)?,
            self.ungrouped(given, &of_key)?,
            self.ungrouped(given, &of_value)?,
        ];
        let (of_x, of_weights) = given.kernels.heads_gradient(self, x, weights, &features)?;
        if to.wants_parameters {
            let width = weights.elem_count();
            let sums = given.kernels.column_sums(&of_weights, &[(0, width)])?;
            // The parameters are the logarithms.
            let of_logarithms = (sums.reshape(weights.shape())? * weights)?;
            to.parameters[parameter] = Some(of_logarithms.t()?.contiguous()?);
        }
        Ok(of_x)
    }

    /// From features `[rows, heads, features]` to `[groups, rows of a group, features]`. Heads that share keys are more queries of one group.
    fn grouped(&self, given: &Given, features: &Tensor) -> Result<Tensor> {
        let (_, heads, width) = features.dims3()?;
        let (samples, items) = (given.samples, given.items);
        if self.shared {
            return features.reshape((samples, items * heads, width));
        }
        let features = features.reshape((samples, items, heads, width))?;
        let features = features.transpose(1, 2)?.contiguous()?;
        features.reshape((samples * heads, items, width))
    }

    /// The inverse of [`Self::grouped`].
    fn ungrouped(&self, given: &Given, features: &Tensor) -> Result<Tensor> {
        let (groups, count, width) = features.dims3()?;
        let (samples, items) = (given.samples, given.items);
        if self.shared {
            return features.reshape((samples * items, count / items, width));
        }
        let heads = groups / samples;
        let features = features.reshape((samples, heads, items, width))?;
        let features = features.transpose(1, 2)?.contiguous()?;
        features.reshape((samples * items, heads, width))
    }

    /// The shape of attended values for the kernel that merges heads.
    fn merged_shape(&self, given: &Given, width: usize) -> [usize; 4] {
        match self.shared {
            true => [given.samples, given.items, self.heads, width],
            false => [given.samples, self.heads, given.items, width],
        }
    }
}
