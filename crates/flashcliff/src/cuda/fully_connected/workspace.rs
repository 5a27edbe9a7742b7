//! How the batch is cut into blocks of rows, and what the workspace of a pass holds.

use std::ops::Range;

use flashcliff_sys as sys;

use super::blocked::Blocked;
use super::products::Products;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::{MatmulPrecision, workspace_bytes};
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::{Dims, Pass};

/// What the path products of a block, and the rows of the output beside them, take at the most, unless a
/// single row takes more.
const BLOCK_BYTES: usize = 64 << 20;

/// Rows of a block at the most: with all blades of a grade, not more than cuBLASLt is trusted with.
const MOST_ROWS: usize = 1 << 16;

/// Where there are several blocks, their rows come in such units, so that all blades are aligned alike.
const ROW_UNIT: usize = 64;

/// By grade of the algebra.
pub(super) type ByGrade<T> = [T; sys::FC_MAX_GRADES as usize];

/// The rows of a batch, cut into blocks. Depends on the shape and the types alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    batch: usize,
    /// Of each block but the last.
    pub(super) rows: usize,
}

impl Blocks {
    /// Blocks of rows that take so many bytes each.
    fn new(batch: usize, row_bytes: usize) -> Self {
        let most = (BLOCK_BYTES / row_bytes.max(1)).clamp(1, MOST_ROWS);
        if batch <= most {
            return Self { batch, rows: batch };
        }
        let unit = if most < ROW_UNIT { 1 } else { ROW_UNIT };
        let count = batch.div_ceil(most / unit * unit);
        let rows = batch.div_ceil(count).next_multiple_of(unit);
        Self { batch, rows }
    }

    pub(super) fn of(blocked: &Blocked, dims: &Dims, pass: Pass, dtypes: Dtypes) -> Self {
        let slices = blocked
            .grades
            .iter()
            .map(|g| g.blades.len() * g.paths.len());
        let (lane, sum) = (dtypes.lanes.bytes(), dtypes.arithmetic().bytes());
        let (formed, product) = match pass {
            Pass::Forward => (slices.max().unwrap_or(0) * lane, sum),
            // The gradients of all path products at once.
            Pass::Backward => (slices.sum::<usize>() * sum, lane),
        };
        let output = blocked.output_blades() * dims.out_channels * product;
        Self::new(dims.batch, formed * dims.in_channels + output)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Range<usize>> {
        let starts = (0..self.batch).step_by(self.rows.max(1));
        starts.map(move |first| first..self.batch.min(first + self.rows))
    }

    /// The sizes that blocks have.
    pub(super) fn sizes(self) -> impl Iterator<Item = usize> {
        let first = self.iter().next();
        let last = self.iter().last().filter(|last| last.len() != self.rows);
        first.into_iter().chain(last).map(|rows| rows.len())
    }
}

/// The parts of a workspace, as addresses, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    /// The weights `[paths, in, out]` in the order of the products, in the type of the lanes.
    pub(super) weights: u64,
    /// The path products of a block. Forward, and for the gradients of the weights, grades take turns; the
    /// gradients of all of them lie beside each other.
    pub(super) formed: u64,
    pub(super) formed_grads: ByGrade<u64>,
    /// The product of a block `[blades, rows, out]` in the type of sums, or its gradient in that of the lanes.
    pub(super) product: u64,
    /// The gradients of the weights, in parts.
    pub(super) weight_grads: ByGrade<u64>,
    /// cuBLASLt's own.
    pub(super) blas: u64,
    pub(super) bytes: usize,
}

impl Space {
    /// `wanted` are the gradients of the operands and of the weights.
    pub(super) fn new(
        blocked: &Blocked,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        wanted: [bool; 2],
    ) -> Self {
        let blocks = Blocks::of(blocked, dims, pass, dtypes);
        let (forward, [of_operands, of_weights]) = (pass == Pass::Forward, wanted);
        let (lane, sum) = (dtypes.lanes.bytes(), dtypes.arithmetic().bytes());
        let mut this = Self::default();
        if forward || of_operands {
            let weights = blocked.path_count() * dims.in_channels * dims.out_channels;
            this.weights = this.add(weights * lane);
        }
        let output = blocked.output_blades() * blocks.rows * dims.out_channels;
        this.product = this.add(output * if forward { sum } else { lane });
        let mut blas = 0;
        let mut formed = 0;
        let start = this.bytes;
        for grade in &blocked.grades {
            // The precision does not matter here.
            let precision = MatmulPrecision::default();
            let products = Products::new(grade, dims, dtypes, blocks, precision);
            let mut workspace = |m, n| blas = workspace_bytes(m, n, dtypes.lanes).max(blas);
            let (rows, width, out) = (products.rows(), products.width(), dims.out_channels);
            if of_operands {
                this.formed_grads[grade.grade] = this.add(rows * width * sum);
                workspace(width, rows);
            }
            if forward || of_weights {
                formed = (rows * width * lane).max(formed);
                workspace(out, if forward { rows } else { width });
            }
        }
        this.formed = start as u64;
        this.add(formed.saturating_sub(this.bytes - start));
        if of_weights {
            for grade in &blocked.grades {
                let precision = MatmulPrecision::default();
                let products = Products::new(grade, dims, dtypes, blocks, precision);
                let len = products.parts() * products.width() * dims.out_channels;
                this.weight_grads[grade.grade] = this.add(len * sum);
            }
        }
        this.blas = this.add(blas);
        this
    }

    /// The parts of a workspace at `base`.
    pub(super) fn at(self, base: u64) -> Self {
        Self {
            weights: base + self.weights,
            formed: base + self.formed,
            formed_grads: self.formed_grads.map(|offset| base + offset),
            product: base + self.product,
            weight_grads: self.weight_grads.map(|offset| base + offset),
            blas: base + self.blas,
            bytes: self.bytes,
        }
    }

    /// The offset of a new part.
    fn add(&mut self, bytes: usize) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        offset as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_batch_within_their_bound() {
        for row_bytes in [0, 1, 1000, 20_000, 4 << 20, 100 << 20] {
            for batch in [0, 1, 63, 64, 1000, 4097, 1_000_000] {
                let blocks = Blocks::new(batch, row_bytes);
                let mut next = 0;
                for rows in blocks.iter() {
                    assert_eq!(rows.start, next);
                    assert!(!rows.is_empty() && rows.len() <= MOST_ROWS);
                    assert!(rows.len() == 1 || rows.len() * row_bytes <= BLOCK_BYTES);
                    next = rows.end;
                }
                assert_eq!(next, batch, "{row_bytes}");
                let mut sizes: Vec<usize> = blocks.iter().map(|rows| rows.len()).collect();
                sizes.dedup();
                assert_eq!(sizes, blocks.sizes().collect::<Vec<_>>());
            }
        }
    }
}
