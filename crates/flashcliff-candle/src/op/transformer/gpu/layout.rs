//! How the items of attention lie: samples of equal length, or a ragged batch that is padded to its longest sequence, and what hides keys.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use crate::op::transformer::scope::{Scope, seen};
use crate::op::transformer::sequences::Padding;

/// The items of queries and of keys.
pub(super) struct Layout {
    pub(super) samples: usize,
    /// The queries of a sample, and its keys.
    pub(super) items: [usize; 2],
    /// The padding of queries and of keys in ragged batches.
    padding: Option<[Arc<Padding>; 2]>,
    /// Numbers that are added to scores, and 1 for each row that shows a key, else 0.
    pub(super) mask: Option<(Tensor, Tensor)>,
}

impl Layout {
    /// The layout of samples with so many queries and keys each, in tokens like another tensor.
    pub(super) fn new(
        scope: &Scope,
        samples: usize,
        items: [usize; 2],
        mask: Option<&Tensor>,
        like: &Tensor,
    ) -> Result<Self> {
        let (queries, keys) = match scope {
            Scope::Sample | Scope::Masked(_) => {
                return Ok(Self {
                    samples,
                    items,
                    padding: None,
                    mask: mask.map(seen).transpose()?,
                });
            }
            Scope::Within(all) => (all, all),
            Scope::Between(queries, keys) => (queries, keys),
        };
        let padding = [queries.padding(like)?, keys.padding(like)?];
        Ok(Self {
            samples: padding[0].samples,
            items: [padding[0].longest, padding[1].longest],
            mask: Some(seen(&padding[1].mask)?),
            padding: Some(padding),
        })
    }

    /// Rows `[rows, ..]` of queries (0) or keys (1) as items `[samples * items, ..]`.
    pub(super) fn spread(&self, side: usize, rows: &Tensor) -> Result<Tensor> {
        match &self.padding {
            None => Ok(rows.clone()),
            Some(padding) => padding[side].pad(rows),
        }
    }

    /// The inverse of [`Self::spread`].
    pub(super) fn gather(&self, side: usize, items: &Tensor) -> Result<Tensor> {
        match &self.padding {
            None => Ok(items.clone()),
            Some(padding) => padding[side].unpad(items),
        }
    }

    /// Whether items are padded.
    pub(super) fn is_padded(&self) -> bool {
        self.padding.is_some()
    }
}
