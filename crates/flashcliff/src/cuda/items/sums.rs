//! Sums of the columns of a matrix.

use flashcliff_sys as sys;

use super::{Items, Target};
use crate::cuda::Address;
use crate::cuda::dtype::code;
use crate::cuda::tensor::pointer;
use crate::{Dtype, Error};

/// A matrix and runs of neighbouring columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns<'a> {
    /// The address of the matrix `[rows, width]`, whose columns are neighbours in memory.
    pub elements: Address,
    /// The rows.
    pub rows: usize,
    /// The columns.
    pub width: usize,
    /// The elements from a row to the next.
    pub row_stride: usize,
    /// The type of the elements. 16-bit elements are added in `f32`.
    pub dtype: Dtype,
    /// The first column of each run and the one after its last: ascending, none twice, at most [`Columns::MOST`] runs.
    pub runs: &'a [(usize, usize)],
}

impl Columns<'_> {
    /// The most runs.
    pub const MOST: usize = sys::FC_ITEM_RUNS as usize;

    fn raw(self) -> sys::fc_item_columns {
        let mut raw = sys::fc_item_columns {
            elements: pointer(self.elements),
            rows: self.rows as i64,
            width: self.width as i64,
            row_stride: self.row_stride as i64,
            dtype: code(self.dtype),
            // The functions refuse more runs than there is room for.
            count: i32::try_from(self.runs.len()).unwrap_or(i32::MAX),
            ..Default::default()
        };
        let places = raw.starts.iter_mut().zip(&mut raw.stops);
        for ((start, stop), run) in places.zip(self.runs) {
            (*start, *stop) = (run.0 as i64, run.1 as i64);
        }
        raw
    }
}

impl Items {
    /// The rows of partial sums that [`Self::column_sums`] writes.
    pub fn sum_partials(columns: Columns<'_>) -> usize {
        // SAFETY: the function reads the sizes only.
        let rows = unsafe { sys::fc_item_sum_partials(&columns.raw()) };
        usize::try_from(rows).unwrap_or(0)
    }

    /// Writes the sums of the columns of all runs, and zeros for the other columns, to `to`, `[width]`. `partials` has room for
    /// [`Self::sum_partials`] times as many numbers as the runs have columns, in the type of the arithmetic.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn column_sums(
        target: Target<'_>,
        columns: Columns<'_>,
        partials: Address,
        to: Address,
    ) -> Result<(), Error> {
        let raw = sys::fc_item_columns {
            partials: pointer(partials),
            to: pointer(to),
            ..columns.raw()
        };
        target.launch("fc_item_sums", |stream| {
            // SAFETY: the caller promises it; the structure lives until the function returns.
            unsafe { sys::fc_item_sums(&raw, stream) }
        })
    }
}
