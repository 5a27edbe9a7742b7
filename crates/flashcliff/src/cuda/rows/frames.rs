//! Multivectors of rows times matrices of their row, which are outermorphisms of a matrix of vectors.

use super::functions::Function;
use super::{Argument, Arguments, Rows};
use crate::Error;
use crate::cuda::Address;
use crate::cuda::items::Target;

/// Outermorphisms of rows, one for all channels of a row, and how their entries follow from frames.
///
/// Entries of a block, which is a grade, are a square matrix, row by row. The first entries of all are the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFrames {
    /// The address of the frames, `[rows, frame_len]`.
    pub frames: Address,
    /// The address of the entries, `[rows, entry_count]`.
    pub entries: Address,
    /// The rows.
    pub rows: usize,
    /// The numbers of a frame.
    pub frame_len: usize,
    /// The entries of a row.
    pub entry_count: usize,
    /// The address of terms `[term_count, 3]`, `i32`: an entry, and the two whose product it adds. Factors are
    /// complete in front of their first use.
    pub terms: Address,
    /// The address of the factors of terms, `[term_count]`.
    pub term_signs: Address,
    /// The terms.
    pub term_count: usize,
    /// The address of the block of each blade, `[blades, 3]`, `i32`: its first blade, its blades and its first entry.
    /// A blade whose block has no blades stays as it is.
    pub blocks: Address,
    /// The address of the blades of each entry, `[entry_count, 2]`, `i32`.
    pub pairs: Address,
    /// The address of a factor of each blade, `[blades]`, on both sides of an entry.
    pub signs: Address,
    /// The blades.
    pub blades: usize,
    /// The channels of a blade.
    pub channels: usize,
    /// The columns of rows. Columns after all blades stay as they are.
    pub width: usize,
}

impl Rows {
    /// Writes the entries.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and tables name entries.
    pub unsafe fn outermorphism(&self, target: Target<'_>, of: &RowFrames) -> Result<(), Error> {
        let addresses = [of.frames, of.terms, of.term_signs, of.entries];
        let [frames, terms, signs, entries] = addresses.map(Argument::Address);
        let [rows, frame, all, count] = of.counts();
        let arguments = [frames, terms, signs, entries, rows, frame, all, count];
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                Function::Outermorphism,
                of.rows,
                Arguments(arguments),
            )
        }
    }

    /// The gradient of frames from that of the entries, `[rows, entry_count]`, which is used up.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of [`Self::outermorphism`] holds, and the entries are there.
    pub unsafe fn outermorphism_gradient(
        &self,
        target: Target<'_>,
        of: &RowFrames,
        gradients: Address,
        to: Address,
    ) -> Result<(), Error> {
        let addresses = [of.entries, gradients, of.terms, of.term_signs, to];
        let [entries, gradients, terms, signs, to] = addresses.map(Argument::Address);
        let [rows, frame, all, count] = of.counts();
        let arguments = [
            entries, gradients, terms, signs, to, rows, frame, all, count,
        ];
        let function = Function::OutermorphismGradient;
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, function, of.rows, Arguments(arguments)) }
    }

    /// `[rows, width]` with blades multiplied by the matrices of the entries, or by their transposes.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, the entries are there, and tables name blades and entries.
    pub unsafe fn multiply_frames(
        &self,
        target: Target<'_>,
        of: &RowFrames,
        x: Address,
        (to, transposed): (Address, bool),
    ) -> Result<(), Error> {
        let addresses = [x, of.entries, of.blocks, of.signs, to];
        let [x, entries, blocks, signs, to] = addresses.map(Argument::Address);
        let sizes = [
            of.rows,
            of.width,
            of.blades,
            of.channels,
            of.entry_count,
            usize::from(transposed),
        ];
        let [rows, width, blades, channels, all, transposed] = sizes.map(Argument::count);
        let arguments = [
            x, entries, blocks, signs, to, rows, width, blades, channels, all, transposed,
        ];
        let threads = of.rows * of.width;
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                Function::MultiplyFrames,
                threads,
                Arguments(arguments),
            )
        }
    }

    /// For each entry the sum over channels of `x y` of its blades, `[rows, entry_count]`: the gradient of entries.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and pairs name blades.
    pub unsafe fn frame_products(
        &self,
        target: Target<'_>,
        of: &RowFrames,
        [x, y]: [Address; 2],
        to: Address,
    ) -> Result<(), Error> {
        let [x, y, pairs, signs, to] = [x, y, of.pairs, of.signs, to].map(Argument::Address);
        let sizes = [of.rows, of.width, of.channels, of.entry_count];
        let [rows, width, channels, all] = sizes.map(Argument::count);
        let arguments = [x, y, pairs, signs, to, rows, width, channels, all];
        let threads = of.rows * of.entry_count;
        // SAFETY: the caller promises it.
        unsafe {
            self.launch(
                target,
                Function::FrameProducts,
                threads,
                Arguments(arguments),
            )
        }
    }
}

impl RowFrames {
    /// Rows, the numbers of a frame, entries and terms.
    fn counts(&self) -> [Argument<'static>; 4] {
        let counts = [self.rows, self.frame_len, self.entry_count, self.term_count];
        counts.map(Argument::count)
    }
}
