//! Norms of groups of columns, and their derivatives.

use cudarc::driver::sys::CUdeviceptr;

use super::functions::JetFunction;
use super::{Argument, Arguments, RowJets, WARP};
use crate::Error;
use crate::cuda::items::Target;

/// Norms of groups of columns of rows.
///
/// | kind of a group | norm |
/// |---|---|
/// | 0 | over the root of the mean of signed squares, at least `least` |
/// | 1 | without the mean of the numbers, over the root of the mean of squares plus `of_scalars` |
/// | 2 | over the root of the mean of signed squares plus `of_both` |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowNorms {
    /// The address of the groups, `[count, 4]` `i32`: the first unit and the one after the last, the kind, and what the
    /// sum of squares is divided by.
    pub groups: CUdeviceptr,
    /// The address of the units, `[units, 3]` `i32`, whose squares have one sign, the sign of their sum: the first
    /// column and the one after the last, and whether the sign is 1 in any case.
    pub units: CUdeviceptr,
    /// The address of the columns, `[columns, 4]` `i32`: the place in rows of results, the place of the first component
    /// in rows of tokens, the distance to the next component, and the factor of the square.
    pub columns: CUdeviceptr,
    /// The groups of a row.
    pub count: usize,
    /// The numbers of a row of results, and of tokens.
    pub widths: [usize; 2],
    /// The smallest mean of the first kind.
    pub least: f64,
    /// What the second kind adds to the mean.
    pub of_scalars: f64,
    /// What the third kind adds to the mean.
    pub of_both: f64,
}

/// The numbers of [`RowNorms`], as the kernel takes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawNorms {
    tables: [CUdeviceptr; 3],
    sizes: [i64; 3],
    added: [f64; 3],
}

impl RowJets {
    /// Writes the norms of tokens, or their derivatives along the directions of tokens.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and each place is the place of a column.
    pub unsafe fn norms(
        &self,
        target: Target<'_>,
        norms: RowNorms,
        rows: usize,
        [x, y]: [CUdeviceptr; 2],
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.launch_norms(target, norms, rows, [x, 0, y, 0]) }
    }

    /// Writes the gradients of all components of rows of tokens from that of the result of [`Self::norms`].
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of [`Self::norms`] holds.
    pub unsafe fn norms_gradient(
        &self,
        target: Target<'_>,
        norms: RowNorms,
        rows: usize,
        [x, g, to]: [CUdeviceptr; 3],
    ) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe { self.launch_norms(target, norms, rows, [x, g, 0, to]) }
    }

    /// # Safety
    /// The contract of [`Self::norms`] holds.
    unsafe fn launch_norms(
        &self,
        target: Target<'_>,
        norms: RowNorms,
        rows: usize,
        [x, g, y, to]: [CUdeviceptr; 4],
    ) -> Result<(), Error> {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let [width, of_x] = norms.widths;
        let mut raw = RawNorms {
            tables: [norms.groups, norms.units, norms.columns],
            sizes: [norms.count, width, of_x].map(count),
            added: [norms.least, norms.of_scalars, norms.of_both],
        };
        let [x, g, y, to] = [x, g, y, to].map(Argument::Address);
        let arguments = Arguments([
            x,
            g,
            y,
            to,
            Argument::Norms(&mut raw),
            Argument::count(rows),
        ]);
        let threads = rows * norms.count * WARP;
        // SAFETY: the caller promises it.
        unsafe { self.launch(target, JetFunction::Norms, threads, arguments) }
    }
}
