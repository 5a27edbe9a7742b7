//! Samples that are computed together, and their layout.

use std::ops::Range;

use super::Channels;
use super::dropout::Numbers;
use crate::op::Scalar;

/// Samples that are computed together.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a, T> {
    pub(crate) blades: usize,
    pub(crate) samples: Samples<'a>,
    /// The position of the first token among all.
    pub(crate) first_row: usize,
    /// The reference of joins for each token; empty without joins.
    pub(crate) reference: &'a [T],
    /// Extra tokens, packed; empty without.
    pub(crate) extra: &'a [T],
    pub(crate) mask: Option<Mask<'a, T>>,
    /// The random numbers of dropout; `None` outside of training.
    pub(crate) numbers: Option<Numbers>,
}

/// The items of samples, which attend within their sample.
#[derive(Clone, Copy)]
pub(crate) enum Samples<'a> {
    /// Samples that all have the same number of items.
    Equal { samples: usize, items: usize },
    /// Samples of any lengths, by their boundaries. The first boundary need not be 0.
    Ragged(&'a [usize]),
}

/// Neighbouring samples of equal length among the rows of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) first: usize,
    pub(crate) samples: usize,
    pub(crate) items: usize,
}

/// Numbers that are added to scores, `[samples, heads, queries, keys]`. All axes but the last may be 1, which stands for all.
#[derive(Clone, Copy)]
pub(crate) struct Mask<'a, T> {
    pub(crate) numbers: &'a [T],
    pub(crate) shape: [usize; 4],
    /// The first sample of the chunk among all.
    pub(crate) first: usize,
}

impl<T> Mask<'_, T> {
    /// The row of a sample of the chunk, a head and a query.
    pub(crate) fn row(&self, sample: usize, head: usize, query: usize) -> usize {
        let at = |index: usize, axis: usize| index.min(self.shape[axis] - 1);
        let sample = at(self.first + sample, 0);
        (sample * self.shape[1] + at(head, 1)) * self.shape[2] + at(query, 2)
    }
}

impl<'a> Samples<'a> {
    /// The tokens.
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::Equal { samples, items } => samples * items,
            Self::Ragged(bounds) => match (bounds.first(), bounds.last()) {
                (Some(first), Some(last)) => last - first,
                _ => 0,
            },
        }
    }

    /// The samples as runs of equal length.
    pub(crate) fn runs(self) -> impl Iterator<Item = Run> + 'a {
        let (equal, bounds) = match self {
            Self::Equal { samples, items } => {
                let run = Run {
                    first: 0,
                    samples,
                    items,
                };
                (Some(run), &[][..])
            }
            Self::Ragged(bounds) => (None, bounds),
        };
        let start = bounds.first().copied().unwrap_or(0);
        let ragged = bounds.windows(2).map(move |pair| Run {
            first: pair[0] - start,
            samples: 1,
            items: pair[1] - pair[0],
        });
        equal.into_iter().chain(ragged)
    }
}

impl Run {
    /// The rows.
    pub(crate) fn rows(self) -> Range<usize> {
        self.first..self.first + self.samples * self.items
    }
}

impl<'a, T> Chunk<'a, T> {
    /// A chunk that begins with the first sample of all, without a reference, extra tokens, a mask and random numbers.
    pub(super) fn of(blades: usize, samples: Samples<'a>) -> Self {
        Self {
            blades,
            samples,
            first_row: 0,
            reference: &[],
            extra: &[],
            mask: None,
            numbers: None,
        }
    }

    /// A chunk of one sample with so many tokens.
    pub(super) fn of_rows(blades: usize, items: usize) -> Self {
        Self::of(blades, Samples::Equal { samples: 1, items })
    }

    /// The tokens.
    pub(crate) fn rows(&self) -> usize {
        self.samples.rows()
    }

    /// The number of elements of so many channels.
    pub(crate) fn len(&self, channels: Channels) -> usize {
        self.rows() * channels.width_over(self.blades)
    }

    /// The multivectors `[blades, rows, channels]` and the scalars `[rows, channels]`.
    pub(crate) fn split<'x>(&self, channels: Channels, data: &'x [T]) -> (&'x [T], &'x [T]) {
        data.split_at(self.blades * self.rows() * channels.multivectors)
    }

    /// The same, for writing.
    pub(crate) fn split_mut<'x>(
        &self,
        channels: Channels,
        data: &'x mut [T],
    ) -> (&'x mut [T], &'x mut [T]) {
        data.split_at_mut(self.blades * self.rows() * channels.multivectors)
    }

    /// Copies tokens into the layout of the chunk.
    pub(super) fn unpack(&self, channels: Channels, tokens: &[T], chunk: &mut [T])
    where
        T: Scalar,
    {
        self.for_each_piece(channels, |token, place| {
            chunk[place].copy_from_slice(&tokens[token]);
        });
    }

    /// Copies the chunk into tokens.
    pub(super) fn pack(&self, channels: Channels, chunk: &[T], tokens: &mut [T])
    where
        T: Scalar,
    {
        self.for_each_piece(channels, |token, place| {
            tokens[token].copy_from_slice(&chunk[place]);
        });
    }

    /// Calls a function with the place of each blade, and of the scalars, of each token, among the tokens and in the chunk.
    fn for_each_piece(&self, channels: Channels, mut copy: impl FnMut(Range<usize>, Range<usize>)) {
        let (blades, rows) = (self.blades, self.rows());
        let (width, mv, s) = (
            channels.width_over(blades),
            channels.multivectors,
            channels.scalars,
        );
        for row in 0..rows {
            for blade in 0..blades {
                let from = row * width + blade * mv;
                let to = (blade * rows + row) * mv;
                copy(from..from + mv, to..to + mv);
            }
            let (from, to) = (row * width + blades * mv, blades * rows * mv + row * s);
            copy(from..from + s, to..to + s);
        }
    }
}
