//! The blocks of rows that a batch is cut into.

use std::ops::Range;

/// The largest number of rows of a block. Times the blades of a grade, it stays within the sizes that cuBLASLt is known
/// to handle.
const MOST_ROWS: usize = 1 << 16;

/// The unit of the number of rows if there are several blocks, so that all blades are aligned alike.
const ROW_UNIT: usize = 64;

/// The rows of a batch, cut into blocks. They depend on the shape, the types and the limit alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    batch: usize,
    /// The rows of each block but the last.
    pub(super) rows: usize,
}

impl Blocks {
    /// Cuts a batch into blocks of rows of `row_bytes` bytes. A block stays within `limit` bytes, unless a single row
    /// takes more.
    pub(super) fn new(batch: usize, row_bytes: usize, limit: usize) -> Self {
        let most = (limit / row_bytes.max(1)).clamp(1, MOST_ROWS);
        if batch <= most {
            return Self { batch, rows: batch };
        }
        let unit = if most < ROW_UNIT { 1 } else { ROW_UNIT };
        let count = batch.div_ceil(most / unit * unit);
        let rows = batch.div_ceil(count).next_multiple_of(unit);
        Self { batch, rows }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Range<usize>> {
        let starts = (0..self.batch).step_by(self.rows.max(1));
        starts.map(move |first| first..self.batch.min(first + self.rows))
    }

    /// The different numbers of rows that blocks have.
    pub(super) fn sizes(self) -> impl Iterator<Item = usize> {
        let first = self.iter().next();
        let last = self.iter().last().filter(|last| last.len() != self.rows);
        first.into_iter().chain(last).map(|rows| rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 64 << 20;

    #[test]
    fn blocks_cover_the_batch_within_their_bound() {
        for row_bytes in [0, 1, 1000, 20_000, 4 << 20, 100 << 20] {
            for batch in [0, 1, 63, 64, 1000, 4097, 1_000_000] {
                let blocks = Blocks::new(batch, row_bytes, LIMIT);
                let mut next = 0;
                for rows in blocks.iter() {
                    assert_eq!(rows.start, next);
                    assert!(!rows.is_empty() && rows.len() <= MOST_ROWS);
                    assert!(rows.len() == 1 || rows.len() * row_bytes <= LIMIT);
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
