//! How the items of attention lie: samples of equal length, or the sequences of a ragged batch, and what hides keys.

use std::sync::{Arc, OnceLock};

use candle_core::{Result, Tensor};

use crate::op::transformer::scope::{Scope, seen};
use crate::op::transformer::sequences::{Padding, Sequences};

/// The items of queries and of keys.
pub(super) struct Layout {
    pub(super) samples: usize,
    /// The most queries of a sample or sequence, and the most keys.
    pub(super) items: [usize; 2],
    ragged: Option<Ragged>,
    mask: Option<Added>,
}

/// Numbers that are added to scores, and 1 for each row that shows a key, else 0.
type Added = (Tensor, Tensor);

/// The sequences of queries and of keys.
struct Ragged {
    sequences: [Sequences; 2],
    /// A tensor of the type and on the device of features.
    like: Tensor,
    /// Made when attention wants sequences of equal length.
    padded: OnceLock<([Arc<Padding>; 2], Added)>,
}

impl Ragged {
    fn padded(&self) -> Result<&([Arc<Padding>; 2], Added)> {
        if let Some(padded) = self.padded.get() {
            return Ok(padded);
        }
        let [queries, keys] = &self.sequences;
        let sides = [queries.padding(&self.like)?, keys.padding(&self.like)?];
        let hidden = seen(&sides[1].mask)?;
        Ok(self.padded.get_or_init(|| (sides, hidden)))
    }
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
        let sequences = match scope {
            Scope::Sample | Scope::Masked(_) => {
                return Ok(Self {
                    samples,
                    items,
                    ragged: None,
                    mask: mask.map(seen).transpose()?,
                });
            }
            Scope::Within(all) => [all.clone(), all.clone()],
            Scope::Between(queries, keys) => [queries.clone(), keys.clone()],
        };
        Ok(Self {
            samples: sequences[0].len(),
            items: sequences.each_ref().map(Sequences::longest),
            ragged: Some(Ragged {
                sequences,
                like: like.detach(),
                padded: OnceLock::new(),
            }),
            mask: None,
        })
    }

    /// The mask that hides keys of samples, or of padded sequences.
    pub(super) fn mask(&self) -> Result<Option<&Added>> {
        match &self.ragged {
            None => Ok(self.mask.as_ref()),
            Some(ragged) => Ok(Some(&ragged.padded()?.1)),
        }
    }

    /// Whether a mask was given.
    pub(super) fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// The bounds of the sequences of queries and of keys, `[samples + 1]` of `U32`; `None` if they are equally long.
    pub(super) fn bounds(&self) -> Result<Option<[Tensor; 2]>> {
        let Some(ragged) = &self.ragged else {
            return Ok(None);
        };
        let [queries, keys] = &ragged.sequences;
        let of = |sequences: &Sequences| sequences.bounds(&ragged.like);
        Ok(Some([of(queries)?, of(keys)?]))
    }

    /// Rows `[rows, ..]` of queries (0) or keys (1) as items `[samples * items, ..]`.
    pub(super) fn spread(&self, side: usize, rows: &Tensor) -> Result<Tensor> {
        match &self.ragged {
            None => Ok(rows.clone()),
            Some(ragged) => ragged.padded()?.0[side].pad(rows),
        }
    }

    /// The inverse of [`Self::spread`].
    pub(super) fn gather(&self, side: usize, items: &Tensor) -> Result<Tensor> {
        match &self.ragged {
            None => Ok(items.clone()),
            Some(ragged) => ragged.padded()?.0[side].unpad(items),
        }
    }

    /// Whether items are those of a ragged batch.
    pub(super) fn is_ragged(&self) -> bool {
        self.ragged.is_some()
    }
}
