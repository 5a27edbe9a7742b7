//! Samples that are computed together, and their layout.

use std::ops::Range;

use super::Channels;
use crate::Number;
use crate::network::Set;

/// Samples that are computed together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    pub(crate) samples: Samples<'a>,
    /// The position of the first token among all.
    pub(crate) first_row: usize,
    /// The context of the samples: other items, to which theirs may attend.
    pub(crate) context: Samples<'a>,
    /// The position of the first token of the context among all.
    pub(crate) first_context_row: usize,
    /// The number of the first sample among all.
    pub(crate) first_sample: usize,
    /// The random numbers of dropout; `None` outside of training.
    pub(crate) draw: Option<Draw>,
}

/// The random numbers of dropout in a run: the numbers that a key gives for the pass with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The key.
    pub key: u64,
    /// The number of the pass.
    pub step: u32,
}

/// The items of samples, which attend within their sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Samples<'a> {
    /// Samples that all have the same number of items.
    Equal { samples: usize, items: usize },
    /// Samples of any lengths, by their boundaries. The first boundary need not be 0.
    Ragged(&'a [usize]),
}

/// Neighbouring samples of equal length among the rows of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) first: usize,
    pub(crate) samples: usize,
    pub(crate) items: usize,
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

impl Chunk<'_> {
    /// The tokens.
    pub(crate) fn rows(&self) -> usize {
        self.samples.rows()
    }

    /// The first row of a set among all, and the rows.
    pub(crate) fn of(&self, set: Set) -> [usize; 2] {
        match set {
            Set::Items => [self.first_row, self.samples.rows()],
            Set::Context => [self.first_context_row, self.context.rows()],
        }
    }

    /// The chunk as steps on the tokens of a set see it.
    pub(crate) fn seen_from(self, set: Set) -> Self {
        match set {
            Set::Items => self,
            Set::Context => Self {
                samples: self.context,
                first_row: self.first_context_row,
                ..self
            },
        }
    }
}

/// The layout of tokens in a chunk: `[blades, rows, channels]`, then `[rows, scalars]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) blades: usize,
    pub(crate) rows: usize,
    pub(crate) channels: Channels,
}

impl Layout {
    /// The multivectors `[blades, rows, channels]` and the scalars `[rows, channels]`.
    pub(crate) fn split<T>(self, data: &[T]) -> (&[T], &[T]) {
        data.split_at(self.blades * self.rows * self.channels.multivectors)
    }

    /// The same, for writing.
    pub(crate) fn split_mut<T>(self, data: &mut [T]) -> (&mut [T], &mut [T]) {
        data.split_at_mut(self.blades * self.rows * self.channels.multivectors)
    }

    /// Copies tokens, row by row, into the layout of the chunk.
    pub(crate) fn unpack<T: Number>(self, tokens: &[T], chunk: &mut [T]) {
        self.for_each_piece(|token, place| chunk[place].copy_from_slice(&tokens[token]));
    }

    /// Copies the chunk into tokens, row by row.
    pub(crate) fn pack<T: Number>(self, chunk: &[T], tokens: &mut [T]) {
        self.for_each_piece(|token, place| tokens[token].copy_from_slice(&chunk[place]));
    }

    /// Calls a function with the place of each blade, and of the scalars, of each token, among the tokens and in the chunk.
    fn for_each_piece(self, mut copy: impl FnMut(Range<usize>, Range<usize>)) {
        let (blades, rows) = (self.blades, self.rows);
        let Channels {
            multivectors: mv,
            scalars: s,
        } = self.channels;
        let width = self.channels.width_over(blades);
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
