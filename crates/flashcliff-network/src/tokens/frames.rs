//! Frames: a linear map of vectors for each token, which its multivectors are taken to or from.

use super::chunk::Layout;
use super::outermorphism::Outermorphism;
use super::step::{Given, Gradients};
use super::{Channels, Geometry, number};
use crate::scratch::Buffer;
use crate::{Error, Number};

/// The map of a token's multivectors by the frame of the token: a matrix `L` of vectors, `y_i = sum of L[i, j] x_j`,
/// and on other grades its minors, so that exterior products are kept. Scalars stay. All channels of a token have one
/// frame.
///
/// Frames are separate tokens, of [`Self::frames`]: `L` row by row.
///
/// Queries, keys and values that are taken by [`Self::inverse`] from the frames of their tokens to the one of all,
/// attention, and its result taken back by [`Self::new`] are the attention from frame to frame of LLoCa (arXiv
/// 2505.20280): no transformation of all vectors that preserves the metric changes it.
#[derive(Clone, Debug)]
pub struct Frames {
    pub(crate) geometry: Geometry,
    pub(crate) channels: Channels,
    pub(crate) inverse: bool,
    pub(crate) map: Outermorphism,
}

/// Multivectors of a chunk at a row.
#[derive(Clone, Copy)]
struct At {
    row: usize,
    rows: usize,
    channels: usize,
}

impl At {
    /// The first element of a blade.
    fn blade(self, blade: usize) -> usize {
        (blade * self.rows + self.row) * self.channels
    }
}

impl Frames {
    /// The map to frames, by `L`.
    pub fn new(geometry: Geometry, channels: Channels) -> Self {
        Self {
            map: Outermorphism::new(&geometry),
            geometry,
            channels,
            inverse: false,
        }
    }

    /// The map from frames, by the inverse of an `L` that preserves the metric `eta`: `eta L^T eta`. It is that
    /// matrix for any other `L` too.
    ///
    /// # Errors
    /// [`Error::Geometry`] for an algebra with null vectors, whose metric has no inverse.
    pub fn inverse(geometry: Geometry, channels: Channels) -> Result<Self, Error> {
        match geometry.algebra.signature().r() {
            0 => Ok(Self {
                inverse: true,
                ..Self::new(geometry, channels)
            }),
            _ => Err(Error::Geometry {
                choice: "the inverse of frames",
                expected: "an algebra without null vectors",
                got: geometry.algebra.name(),
            }),
        }
    }

    /// The channels of the tokens that frames are.
    pub fn frames(&self) -> Channels {
        Channels::new(0, self.map.frame_len())
    }

    /// The factor of each blade, on both sides of the matrices of an inverse: the metric, or 1.
    pub(crate) fn signs(&self) -> Vec<f64> {
        match self.inverse {
            true => self.geometry.norms().into_iter().map(f64::from).collect(),
            false => vec![1.0; self.geometry.blades()],
        }
    }

    /// The operations for a row: a product and a sum for each entry and channel, and for each term of a minor.
    pub(crate) fn flops_of_a_row(&self) -> usize {
        2 * (self.map.len() * self.channels.multivectors + self.map.terms.len())
    }

    fn layout(&self, rows: usize) -> Layout {
        Layout {
            blades: self.geometry.blades(),
            rows,
            channels: self.channels,
        }
    }

    /// Calls a function with each row and the entries of its frame.
    fn for_each<T: Number>(&self, frames: &[T], mut work: impl FnMut(usize, &[T])) {
        let mut entries = Buffer::take(self.map.len());
        let frames = frames.chunks_exact(self.map.frame_len().max(1));
        for (row, frame) in frames.enumerate() {
            self.map.write(frame, &mut entries);
            work(row, &entries);
        }
    }

    /// Writes the products of matrices, or of their transposes, with multivectors of a row.
    fn multiply<T: Number>(
        &self,
        (entries, transposed, signs): (&[T], bool, &[T]),
        at: At,
        x: &[T],
        y: &mut [T],
    ) {
        for block in &self.map.blocks {
            let size = block.size;
            for row in 0..size {
                let to = &mut y[at.blade(block.blade + row)..][..at.channels];
                to.fill(T::default());
                for column in 0..size {
                    let own = if transposed {
                        column * size + row
                    } else {
                        row * size + column
                    };
                    let signs = signs[block.blade + row] * signs[block.blade + column];
                    let factor = entries[block.entry + own] * signs;
                    let from = &x[at.blade(block.blade + column)..][..at.channels];
                    for (to, &from) in to.iter_mut().zip(from) {
                        *to += factor * from;
                    }
                }
            }
        }
    }

    /// Writes the gradients of entries: the sums over channels of products of multivectors of a row, blade by blade.
    fn sums<T: Number>(&self, signs: &[T], at: At, [left, right]: [&[T]; 2], to: &mut [T]) {
        for block in &self.map.blocks {
            for row in 0..block.size {
                for column in 0..block.size {
                    let [a, b] = [row, column].map(|own| block.blade + own);
                    let left = &left[at.blade(a)..][..at.channels];
                    let right = &right[at.blade(b)..][..at.channels];
                    let mut sum = T::default();
                    for (&left, &right) in left.iter().zip(right) {
                        sum += left * right;
                    }
                    to[block.entry + row * block.size + column] = sum * signs[a] * signs[b];
                }
            }
        }
    }

    pub(crate) fn forward<T: Number>(&self, given: &Given<'_, T>, y: &mut [T]) {
        let rows = given.chunk.rows();
        self.apply(given, (self.inverse, rows), given.x, y);
    }

    /// Writes tokens, multiplied by the matrices of their frames or by the transposes.
    fn apply<T: Number>(
        &self,
        given: &Given<'_, T>,
        (transposed, rows): (bool, usize),
        x: &[T],
        y: &mut [T],
    ) {
        // Scalars, and the blade of scalars, stay.
        y.copy_from_slice(x);
        let layout = self.layout(rows);
        let ((x, _), (y, _)) = (layout.split(x), layout.split_mut(y));
        let (signs, channels) = (self.signs_as::<T>(), self.channels.multivectors);
        self.for_each(given.other, |row, entries| {
            let at = At {
                row,
                rows,
                channels,
            };
            self.multiply((entries, transposed, &signs), at, x, y);
        });
    }

    fn signs_as<T: Number>(&self) -> Vec<T> {
        self.signs().into_iter().map(number).collect()
    }

    /// Writes the gradients of tokens and of frames.
    pub(crate) fn backward<T: Number>(&self, given: &Given<'_, T>, g: &[T], to: Gradients<'_, T>) {
        let rows = given.chunk.rows();
        if let Some(to) = to.x {
            self.apply(given, (!self.inverse, rows), g, to);
        }
        let Some(to) = to.other else { return };
        let layout = self.layout(rows);
        let [(x, _), (g, _)] = [given.x, g].map(|own| layout.split(own));
        let sides = if self.inverse { [x, g] } else { [g, x] };
        let (signs, channels) = (self.signs_as::<T>(), self.channels.multivectors);
        let (len, mut of_entries) = (self.map.frame_len(), Buffer::take(self.map.len()));
        self.for_each(given.other, |row, entries| {
            let at = At {
                row,
                rows,
                channels,
            };
            self.sums(&signs, at, sides, &mut of_entries);
            self.map.write_gradient(entries, &mut of_entries);
            to[row * len..][..len].copy_from_slice(&of_entries[..len]);
        });
    }
}
