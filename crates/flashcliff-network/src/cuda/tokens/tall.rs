//! Products of matrices whose summands are rows.
//!
//! The gradient of a matrix has few tiles, which fill a part of a GPU, however many rows there are. So the rows are cut
//! into parts. Each part has its own result, and the results are added in order.

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::matrix::{MatrixForm, MatrixProduct};

use super::{Site, Sizes};
use crate::Error;
use crate::cuda::room::Room;

/// The side of a tile of a result.
const TILE: usize = 128;
/// The tiles of all parts: about two for each multiprocessor of a large GPU.
const TILES: usize = 256;
/// The rows that are worth a part.
const LEAST_ROWS: usize = 256;
/// The most parts, which bound the memory of results.
const MOST_PARTS: usize = 32;

/// The product of the transpose of `[rows, inputs]` and `[rows, outputs]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tall {
    /// The products of all parts at once.
    parts: MatrixProduct,
    /// The product of the rows after the last part, which is added to the result of the first.
    rest: Option<MatrixProduct>,
}

impl Tall {
    pub(super) fn new(sizes: &Sizes, [inputs, outputs]: [usize; 2]) -> Self {
        let rows = sizes.rows();
        let tiles = inputs.div_ceil(TILE) * outputs.div_ceil(TILE);
        let worth = (rows / LEAST_ROWS).clamp(1, MOST_PARTS);
        let count = (TILES / tiles.max(1)).clamp(1, worth);
        let product = |rows| sizes.product(MatrixForm::LeftTransposed, [inputs, outputs, rows]);
        let rest = rows % count;
        Self {
            parts: MatrixProduct {
                count,
                ..product(rows / count)
            },
            rest: (rest > 0).then(|| MatrixProduct {
                adds: true,
                ..product(rest)
            }),
        }
    }

    /// The products, for a choice of their algorithms.
    pub(super) fn products(&self) -> impl Iterator<Item = MatrixProduct> {
        [self.parts].into_iter().chain(self.rest)
    }

    /// The elements of a result.
    fn len(&self) -> usize {
        self.parts.rows * self.parts.columns
    }

    /// The results of parts, partial sums of these, and the workspace of products.
    fn room(&self, sizes: &Sizes) -> Room<3> {
        let (count, len) = (self.parts.count, self.len());
        let workspace = self.products().map(|own| own.workspace_bytes());
        let [results, partials] = match count {
            1 => [0; 2],
            _ => [
                sizes.bytes(count * len),
                sizes.partial_bytes([count, len], &[(0, len)]),
            ],
        };
        Room::new([results, partials, workspace.max().unwrap_or(0)])
    }

    /// The bytes of memory that a launch needs.
    pub(super) fn bytes(&self, sizes: &Sizes) -> usize {
        self.room(sizes).bytes()
    }

    /// Launches the product of two values into a result, with so many bytes of memory.
    ///
    /// # Safety
    /// The addresses point to both values, to the result and to [`Self::bytes`] of memory.
    pub(super) unsafe fn run(
        &self,
        site: &Site<'_>,
        [x, g, to, memory]: [CUdeviceptr; 4],
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        let (parts, len) = (self.parts, self.len());
        let [results, partials, workspace] = self.room(sizes).at(memory);
        let results = if parts.count == 1 { to } else { results };
        let behind = parts.count * parts.summands;
        let [x_behind, g_behind] = [(x, parts.rows), (g, parts.columns)]
            .map(|(all, width)| sizes.after(all, behind * width));
        // SAFETY: the parts are rows of the values one after another, and the room has the elements of all; the caller promises the rest.
        unsafe {
            site.multiply(parts, [x, g, results, workspace])?;
            if let Some(rest) = self.rest {
                site.multiply(rest, [x_behind, g_behind, results, workspace])?;
            }
            match parts.count {
                1 => Ok(()),
                count => site.column_sums([count, len], &[(0, len)], [results, partials, to]),
            }
        }
    }
}
