//! How samples are cut into chunks, and the layout of a chunk.

use super::{BLADES, Channels};
use crate::op::Scalar;

/// The smallest number of tokens of a chunk that is cut off.
const LEAST_TOKENS: usize = 32;
/// The largest number of chunks. It bounds the memory of gradients of parameters, which each chunk has for itself.
const MOST_CHUNKS: usize = 16;

/// The number of samples of each chunk but the last. It depends on the shape alone, and so do the results.
pub(super) fn samples_of_a_chunk(samples: usize, items: usize) -> usize {
    let worthwhile = LEAST_TOKENS.div_ceil(items.max(1));
    worthwhile.max(samples.div_ceil(MOST_CHUNKS)).max(1)
}

/// Samples that are computed together.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a, T> {
    pub(crate) samples: usize,
    /// The items of a sample.
    pub(crate) items: usize,
    /// The reference of joins for each token; empty without joins.
    pub(crate) reference: &'a [T],
}

impl<T> Chunk<'_, T> {
    /// The tokens.
    pub(crate) fn rows(&self) -> usize {
        self.samples * self.items
    }

    /// The number of elements of so many channels.
    pub(crate) fn len(&self, channels: Channels) -> usize {
        self.rows() * channels.width()
    }

    /// The multivectors `[blades, rows, channels]` and the scalars `[rows, channels]`.
    pub(crate) fn split<'x>(&self, channels: Channels, data: &'x [T]) -> (&'x [T], &'x [T]) {
        data.split_at(BLADES * self.rows() * channels.multivectors)
    }

    /// The same, for writing.
    pub(crate) fn split_mut<'x>(
        &self,
        channels: Channels,
        data: &'x mut [T],
    ) -> (&'x mut [T], &'x mut [T]) {
        data.split_at_mut(BLADES * self.rows() * channels.multivectors)
    }
}

/// Copies tokens into the layout of a chunk.
pub(super) fn unpack<T: Scalar>(channels: Channels, tokens: &[T], chunk: &mut [T]) {
    for_each_piece(channels, tokens.len(), |token, place| {
        chunk[place].copy_from_slice(&tokens[token]);
    });
}

/// Copies a chunk into tokens.
pub(super) fn pack<T: Scalar>(channels: Channels, chunk: &[T], tokens: &mut [T]) {
    for_each_piece(channels, tokens.len(), |token, place| {
        tokens[token].copy_from_slice(&chunk[place]);
    });
}

/// Calls a function with the place of each blade, and of the scalars, of each token, among the tokens and in the chunk.
fn for_each_piece(
    channels: Channels,
    len: usize,
    mut copy: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let (width, mv, s) = (channels.width(), channels.multivectors, channels.scalars);
    if width == 0 {
        return;
    }
    let rows = len / width;
    for row in 0..rows {
        for blade in 0..BLADES {
            let from = row * width + blade * mv;
            let to = (blade * rows + row) * mv;
            copy(from..from + mv, to..to + mv);
        }
        let (from, to) = (row * width + BLADES * mv, BLADES * rows * mv + row * s);
        copy(from..from + s, to..to + s);
    }
}
