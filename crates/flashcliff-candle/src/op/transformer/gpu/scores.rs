//! Attention by matrix products and a softmax. All scores of a sample are in memory, and a mask is added to them. Ragged batches are padded.

use candle_core::{D, Result, Tensor};

use super::layout::Layout;
use super::stages::Given;
use crate::op::transformer::attention::Attention;

/// Values that the backward pass needs.
pub(super) struct Kept {
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
    /// The merged output for features `[rows, heads, features]` of queries, keys and values.
    pub(super) fn by_scores(
        &self,
        given: &Given,
        [query, key, value]: [Tensor; 3],
    ) -> Result<(Tensor, Kept)> {
        let layout = given.layout;
        let query = self.grouped(layout, 0, &query)?;
        let (key, value) = (
            self.grouped(layout, 1, &key)?,
            self.grouped(layout, 1, &value)?,
        );
        let mut scores = query.matmul(&key.t()?)?.affine(self.scale(), 0.0)?;
        if let Some((added, _)) = layout.mask()? {
            let of_heads = scores.reshape(&self.by_query(layout, layout.items[1])[..])?;
            let added = self.in_order(added)?;
            scores = of_heads.broadcast_add(&added)?.reshape(scores.shape())?;
        }
        let shares = candle_nn::ops::softmax_last_dim(&scores)?;
        let out = shares.matmul(&value)?;
        let width = out.dim(D::Minus1)?;
        let out = self.shown(layout, &out)?;
        let features = self.for_merging(layout, &out, width)?;
        let output = given.kernels.merge(self, &features, self.shared)?;
        let kept = Kept {
            query,
            key,
            value,
            shares,
        };
        Ok((output, kept))
    }

    /// The gradients of the features that [`Self::by_scores`] was given.
    pub(super) fn gradient_by_scores(
        &self,
        given: &Given,
        kept: &Kept,
        g: &Tensor,
    ) -> Result<[Tensor; 3]> {
        let (kernels, layout) = (given.kernels, given.layout);
        let Kept {
            query,
            key,
            value,
            shares,
        } = kept;
        let width = value.dim(D::Minus1)?;
        let shape = self.merged_shape(layout, g.dim(0)?, width);
        let of_out = kernels.merge_gradient(self, g, shape, self.shared)?;
        let of_out = self.split_merged(layout, &of_out, width)?;
        let of_out = self.shown(layout, &of_out)?;
        let of_value = shares.t()?.matmul(&of_out)?;
        let products = (shares * of_out.matmul(&value.t()?)?)?;
        let sums = products.sum_keepdim(D::Minus1)?;
        let of_scores = (products - shares.broadcast_mul(&sums)?)?.affine(self.scale(), 0.0)?;
        let of_query = of_scores.matmul(key)?;
        let of_key = of_scores.t()?.matmul(query)?;
        Ok([
            self.ungrouped(layout, 0, &of_query)?,
            self.ungrouped(layout, 1, &of_key)?,
            self.ungrouped(layout, 1, &of_value)?,
        ])
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

    /// The results of queries, `[groups, queries, width]`, with zeros for queries that the mask shows no key.
    fn shown(&self, layout: &Layout, x: &Tensor) -> Result<Tensor> {
        let Some((_, shown)) = layout.mask()? else {
            return Ok(x.clone());
        };
        let of_heads = x.reshape(&self.by_query(layout, x.dim(D::Minus1)?)[..])?;
        let shown = of_heads.broadcast_mul(&self.in_order(shown)?)?;
        shown.reshape(x.shape())
    }

    /// The shape of attended values for the kernel that merges heads.
    fn merged_shape(&self, layout: &Layout, rows: usize, width: usize) -> [usize; 4] {
        match (layout.is_ragged(), self.shared) {
            (true, true) => [1, rows, self.heads, width],
            (true, false) => [1, self.heads, rows, width],
            (false, _) => self.by_query(layout, width),
        }
    }

    /// Attended values `[groups, queries, width]` for the kernel that merges heads.
    fn for_merging(&self, layout: &Layout, out: &Tensor, width: usize) -> Result<Tensor> {
        if !layout.is_ragged() {
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
        if layout.is_ragged() {
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
