//! How tokens are cut into chunks of samples. The cut depends on shapes and on the boundaries of a ragged batch alone, and so do the results.

use std::ops::Range;

use super::chunk::{Chunk, Mask, Samples};
use super::sequences::Sequences;

/// The smallest number of tokens of a chunk that is cut off.
const LEAST_TOKENS: usize = 32;
/// The largest number of chunks. It bounds the memory of gradients of parameters, which each chunk has for itself.
const MOST_CHUNKS: usize = 16;

/// The samples of some tokens.
#[derive(Clone, Copy)]
pub(super) enum All<'a> {
    Equal { samples: usize, items: usize },
    Ragged(&'a Sequences),
}

impl<'a> All<'a> {
    fn samples(self) -> usize {
        match self {
            Self::Equal { samples, .. } => samples,
            Self::Ragged(sequences) => sequences.len(),
        }
    }

    /// The first token of a sample.
    fn start(self, sample: usize) -> usize {
        match self {
            Self::Equal { items, .. } => sample * items,
            Self::Ragged(sequences) => sequences.offsets()[sample],
        }
    }

    pub(super) fn rows(self) -> usize {
        self.start(self.samples())
    }

    fn of_chunk(self, chunk: &Range<usize>) -> Samples<'a> {
        match self {
            Self::Equal { items, .. } => Samples::Equal {
                samples: chunk.len(),
                items,
            },
            Self::Ragged(sequences) => {
                Samples::Ragged(&sequences.offsets()[chunk.start..=chunk.end])
            }
        }
    }
}

/// A cut of tokens, by the samples of each chunk.
pub(super) struct Cut<'a> {
    all: All<'a>,
    chunks: Vec<Range<usize>>,
}

impl<'a> Cut<'a> {
    pub(super) fn new(all: All<'a>) -> Self {
        let (samples, rows) = (all.samples(), all.rows());
        let mut chunks = Vec::new();
        match all {
            All::Equal { items, .. } => {
                let worthwhile = LEAST_TOKENS.div_ceil(items.max(1));
                let of_chunk = worthwhile.max(samples.div_ceil(MOST_CHUNKS)).max(1);
                let starts = (0..samples).step_by(of_chunk);
                chunks.extend(starts.map(|start| start..samples.min(start + of_chunk)));
            }
            All::Ragged(_) => {
                let least = LEAST_TOKENS.max(rows.div_ceil(MOST_CHUNKS));
                let mut start = 0;
                for end in 1..=samples {
                    if end == samples || all.start(end) - all.start(start) >= least {
                        chunks.push(start..end);
                        start = end;
                    }
                }
            }
        }
        Self { all, chunks }
    }

    /// A cut of other tokens into the samples of this one.
    pub(super) fn alike<'b>(&self, all: All<'b>) -> Cut<'b> {
        Cut {
            all,
            chunks: self.chunks.clone(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    fn lens(&self, len: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        let of_row = len / self.all.rows().max(1);
        let rows = |chunk: &Range<usize>| self.all.start(chunk.end) - self.all.start(chunk.start);
        self.chunks.iter().map(move |chunk| of_row * rows(chunk))
    }

    /// A part of a slice for each chunk.
    pub(super) fn parts<'x, T>(&self, data: &'x [T]) -> Vec<&'x [T]> {
        let lens = self.lens(data.len());
        let mut rest = data;
        let take = |len| {
            let (own, others) = rest.split_at(len);
            rest = others;
            own
        };
        lens.map(take).collect()
    }

    /// The same, for writing.
    pub(super) fn parts_mut<'x, T>(&self, data: &'x mut [T]) -> Vec<&'x mut [T]> {
        let lens = self.lens(data.len());
        let mut rest = data;
        let take = |len| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            own
        };
        lens.map(take).collect()
    }

    /// A chunk with the mask of all samples, and nothing else besides its samples.
    pub(super) fn chunk<'x, T: Copy>(
        &self,
        index: usize,
        blades: usize,
        mask: Option<(&'x [T], [usize; 4])>,
    ) -> Chunk<'x, T>
    where
        'a: 'x,
    {
        let chunk = &self.chunks[index];
        Chunk {
            first_row: self.all.start(chunk.start),
            mask: mask.map(|(numbers, shape)| Mask {
                numbers,
                shape,
                first: chunk.start,
            }),
            ..Chunk::of(blades, self.all.of_chunk(chunk))
        }
    }
}
