//! Scores and softmax between the kernels of heads. All scores of a sample are in memory, and a mask is added to them.

use candle_core::{D, Result, Tensor};

use super::layout::Layout;
use super::stages::{Given, Gradients};
use crate::op::transformer::attention::Attention;

/// Values that the backward pass of attention needs besides its inputs.
pub(super) struct Attended {
    /// The weights of distances, `[channels, heads]`.
    weights: Option<Tensor>,
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
    /// The attended values of all heads of the inputs, as many as there are sides.
    pub(super) fn on_gpu(
        &self,
        given: &Given,
        sides: &[&Tensor],
        log_weights: Option<&Tensor>,
    ) -> Result<(Tensor, Attended)> {
        let (kernels, layout) = (given.kernels, given.layout);
        let weights = log_weights.map(|weights| weights.exp()?.squeeze(1)?.t()?.contiguous());
        let weights = weights.transpose()?;
        let mut parts = Vec::new();
        for (side, x) in sides.iter().enumerate() {
            parts.extend(kernels.heads(self, side, x, weights.as_ref())?);
        }
        let [query, key, value] = <[Tensor; 3]>::try_from(parts).map_err(|_| three_parts())?;
        let query = self.grouped(layout, 0, &query)?;
        let (key, value) = (
            self.grouped(layout, 1, &key)?,
            self.grouped(layout, 1, &value)?,
        );
        let mut scores = query.matmul(&key.t()?)?.affine(self.scale(), 0.0)?;
        if let Some((added, _)) = &layout.mask {
            let of_heads = scores.reshape(&self.by_query(layout, layout.items[1])[..])?;
            let added = self.in_order(added)?;
            scores = of_heads.broadcast_add(&added)?.reshape(scores.shape())?;
        }
        let shares = candle_nn::ops::softmax_last_dim(&scores)?;
        let out = shares.matmul(&value)?;
        let width = out.dim(D::Minus1)?;
        let out = self.shown(layout, &out)?;
        let output = kernels.merge(self, &self.for_merging(layout, &out, width)?)?;
        let attended = Attended {
            weights,
            query,
            key,
            value,
            shares,
        };
        Ok((output, attended))
    }

    /// The gradients of the inputs of [`Self::on_gpu`].
    pub(super) fn gradient_on_gpu(
        &self,
        given: &Given,
        sides: &[&Tensor],
        attended: &Attended,
        g: &Tensor,
        parameter: usize,
        to: &mut Gradients,
    ) -> Result<Vec<Tensor>> {
        let (kernels, layout) = (given.kernels, given.layout);
        let Attended {
            weights,
            query,
            key,
            value,
            shares,
        } = attended;
        let width = value.dim(D::Minus1)?;
        let rows = g.dim(0)?;
        let of_out = kernels.merge_gradient(self, g, self.merged_shape(layout, rows, width))?;
        let of_out = self.split_merged(layout, &of_out, width)?;
        let of_out = self.shown(layout, &of_out)?;
        let of_value = shares.t()?.matmul(&of_out)?;
        let products = (shares * of_out.matmul(&value.t()?)?)?;
        let sums = products.sum_keepdim(D::Minus1)?;
        let of_scores = (products - shares.broadcast_mul(&sums)?)?.affine(self.scale(), 0.0)?;
        let of_query = of_scores.matmul(key)?;
        let of_key = of_scores.t()?.matmul(query)?;
        let features = [
            self.ungrouped(layout, 0, &of_query)?,
            self.ungrouped(layout, 1, &of_key)?,
            self.ungrouped(layout, 1, &of_value)?,
        ];
        let mut found = Vec::new();
        for (side, x) in sides.iter().enumerate() {
            let own: Vec<Tensor> = self
                .places_of(side)
                .iter()
                .map(|place| features[place.part as usize].clone())
                .collect();
            let (of_x, of_weights) =
                kernels.heads_gradient(self, side, x, weights.as_ref(), &own)?;
            found.push(of_x);
            if let (Some(weights), Some(of_weights), true) =
                (weights, of_weights, to.wants_parameters)
            {
                let width = weights.elem_count();
                let sums = kernels.column_sums(&of_weights, &[(0, width)])?;
                // The parameters are the logarithms.
                let of_logarithms = (sums.reshape(weights.shape())? * weights)?;
                to.parameters[parameter] = Some(of_logarithms.t()?.contiguous()?);
            }
        }
        Ok(found)
    }

    /// From features `[rows, heads, features]` of queries (0) or keys (1) to `[groups, rows of a group, features]`. Heads that share keys are more
    /// queries of one group.
    fn grouped(&self, layout: &Layout, side: usize, features: &Tensor) -> Result<Tensor> {
        let (_, heads, width) = features.dims3()?;
        let (samples, items) = (layout.samples, layout.items[side]);
        let features = layout.spread(side, features)?;
        if self.shared {
            return features.reshape((samples, items * heads, width));
        }
        let features = features.reshape((samples, items, heads, width))?;
        let features = features.transpose(1, 2)?.contiguous()?;
        features.reshape((samples * heads, items, width))
    }

    /// The inverse of [`Self::grouped`].
    fn ungrouped(&self, layout: &Layout, side: usize, features: &Tensor) -> Result<Tensor> {
        let (groups, count, width) = features.dims3()?;
        let (samples, items) = (layout.samples, layout.items[side]);
        let features = match self.shared {
            true => {
                features.reshape((samples * items, groups * count / (samples * items), width))?
            }
            false => {
                let heads = groups / samples;
                let features = features.reshape((samples, heads, items, width))?;
                let features = features.transpose(1, 2)?.contiguous()?;
                features.reshape((samples * items, heads, width))?
            }
        };
        layout.gather(side, &features)
    }

    /// The axes of what each query has, in the order of groups: samples, then items and heads or heads and items, then `width`.
    fn by_query(&self, layout: &Layout, width: usize) -> [usize; 4] {
        let (samples, items) = (layout.samples, layout.items[0]);
        match self.shared {
            true => [samples, items, self.heads, width],
            false => [samples, self.heads, items, width],
        }
    }

    /// A tensor `[samples, heads, queries, ..]` in the order of groups. Axes may be 1.
    fn in_order(&self, mask: &Tensor) -> Result<Tensor> {
        match self.shared {
            true => mask.transpose(1, 2)?.contiguous(),
            false => Ok(mask.clone()),
        }
    }

    /// What each query has, `[groups, queries, width]`, with zeros for queries that the mask shows no key.
    fn shown(&self, layout: &Layout, x: &Tensor) -> Result<Tensor> {
        let Some((_, shown)) = &layout.mask else {
            return Ok(x.clone());
        };
        let of_heads = x.reshape(&self.by_query(layout, x.dim(D::Minus1)?)[..])?;
        let shown = of_heads.broadcast_mul(&self.in_order(shown)?)?;
        shown.reshape(x.shape())
    }

    /// The shape of attended values for the kernel that merges heads.
    fn merged_shape(&self, layout: &Layout, rows: usize, width: usize) -> [usize; 4] {
        match (layout.is_padded(), self.shared) {
            (true, true) => [1, rows, self.heads, width],
            (true, false) => [1, self.heads, rows, width],
            (false, _) => self.by_query(layout, width),
        }
    }

    /// Attended values `[groups, queries, width]` for the kernel that merges heads.
    fn for_merging(&self, layout: &Layout, out: &Tensor, width: usize) -> Result<Tensor> {
        if !layout.is_padded() {
            return out.reshape(&self.by_query(layout, width)[..]);
        }
        let rows = self.ungrouped(layout, 0, out)?;
        match self.shared {
            true => rows.unsqueeze(0),
            false => rows.transpose(0, 1)?.contiguous()?.unsqueeze(0),
        }
    }

    /// The inverse of [`Self::for_merging`].
    fn split_merged(&self, layout: &Layout, merged: &Tensor, width: usize) -> Result<Tensor> {
        if layout.is_padded() {
            let rows = merged.squeeze(0)?;
            let rows = match self.shared {
                true => rows,
                false => rows.transpose(0, 1)?.contiguous()?,
            };
            return self.grouped(layout, 0, &rows);
        }
        let groups = match self.shared {
            true => layout.samples,
            false => layout.samples * self.heads,
        };
        merged.reshape((groups, merged.elem_count() / (groups * width), width))
    }
}

fn three_parts() -> candle_core::Error {
    candle_core::Error::Msg("attention: expected queries, keys and values".to_owned())
}
