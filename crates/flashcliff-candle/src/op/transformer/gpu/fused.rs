//! Attention by kernels that keep no scores.
//!
//! Features stay where the kernels of heads write them, `[rows, heads, width]`, with zeros up to the width that the kernels of attention want. The
//! sequences of a ragged batch are found by their bounds on the device.

use candle_core::{Result, Tensor};

use super::layout::Layout;
use super::stages::Given;
use crate::op::transformer::attention::Attention;

/// Heads that share keys are computed in one place, unless there are fewer keys than this: one place for all heads would leave a GPU idle then.
const FEW_KEYS: usize = 1 << 15;
/// Sequences of at most so many keys are computed in one place in any case, since a tile has all their heads.
const SHORT: usize = 64;
/// The largest product of the queries of one head and those of all heads in one place. The kernels divide the one number by the other in 32 bits.
const LARGEST: usize = i32::MAX as usize;

/// The sizes of attention within sequences, besides those of features.
pub(in crate::op::transformer) struct Heads {
    pub(super) sequences: usize,
    /// The most queries of a sequence, and the most keys; without bounds those of each.
    pub(super) longest: [usize; 2],
    /// Where the sequences of queries and those of keys begin, and their end, `[sequences + 1]` of `U32`.
    pub(super) bounds: Option<[Tensor; 2]>,
    /// The factor of dot products.
    pub(super) scale: f64,
    /// The heads of queries.
    pub(super) heads: usize,
    /// The heads of the gradients of keys and values: 1, or those of queries, which may read the same keys.
    pub(super) key_heads: usize,
}

/// Values that the backward pass needs.
pub(super) struct Kept {
    /// Queries, keys, values and what queries attend to, `[rows, heads, width]`.
    features: [Tensor; 4],
    /// The logarithms of the sums of exponentials, `[heads, queries]`.
    log_sums: Tensor,
}

impl Attention {
    /// The widths that kernels of attention want of queries and keys, and of values; `None` if they do not serve this attention.
    pub(super) fn fused_widths(&self, given: &Given) -> Option<[usize; 2]> {
        let [queries, _] = given.layout.items;
        let counted = queries.checked_mul(queries);
        let served = !given.layout.is_masked() && counted.is_some_and(|count| count <= LARGEST);
        let widths = given.kernels.attended_widths(self.widths());
        widths.filter(|_| served)
    }

    /// The merged output for features of queries, keys and values.
    pub(super) fn fused(&self, given: &Given, parts: [Tensor; 3]) -> Result<(Tensor, Kept)> {
        let kernels = given.kernels;
        let [query, key, value] = parts;
        let (out, log_sums) =
            kernels.attend(&self.within(given.layout)?, [&query, &key, &value])?;
        let output = kernels.merge(self, &out.unsqueeze(0)?, true)?;
        let features = [query, key, value, out];
        Ok((output, Kept { features, log_sums }))
    }

    /// The gradients of the features that [`Self::fused`] was given.
    pub(super) fn gradient_fused(
        &self,
        given: &Given,
        kept: &Kept,
        g: &Tensor,
    ) -> Result<[Tensor; 3]> {
        let kernels = given.kernels;
        let heads = self.within(given.layout)?;
        let [.., out] = &kept.features;
        let (rows, of_queries, width) = out.dims3()?;
        let g = kernels.merge_gradient(self, g, [1, rows, of_queries, width], true)?;
        let g = g.squeeze(0)?;
        let found =
            kernels.attend_gradient(&heads, kept.features.each_ref(), &kept.log_sums, &g)?;
        let [query, key, value] = found;
        // Gradients of heads that read the same keys.
        let summed = |x: Tensor| match self.shared && heads.key_heads > 1 {
            true => x.sum_keepdim(1),
            false => Ok(x),
        };
        Ok([query, summed(key)?, summed(value)?])
    }

    fn within(&self, layout: &Layout) -> Result<Heads> {
        let [queries, keys] = layout.items;
        let is_few = keys > SHORT && layout.samples.saturating_mul(keys) < FEW_KEYS;
        let folded = queries.saturating_mul(queries).saturating_mul(self.heads);
        let together = self.shared && !is_few && folded <= LARGEST;
        Ok(Heads {
            sequences: layout.samples,
            longest: layout.items,
            bounds: layout.bounds()?,
            scale: self.scale(),
            heads: self.heads,
            key_heads: if together { 1 } else { self.heads },
        })
    }
}
