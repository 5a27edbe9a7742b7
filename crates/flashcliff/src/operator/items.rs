//! Rows of operators that compute each item, a pair of a batch element and a channel, on its own.

use super::{Dims, LaneOperator, Operator};

/// The fewest items of a row that vectors and the threads of a GPU are used for well.
const LONG_ROW: usize = 256;
/// The most items of a row, unless their number has no such divisor. Threads of a CPU share rows.
const LONGEST_ROW: usize = 16 * LONG_ROW;
/// The multiples that are looked for first: whole vectors.
const VECTOR: usize = 16;

impl Operator {
    /// The sizes in which to run the operator on contiguous tensors of some sizes. Kernels go over the rows of a
    /// tensor, and vectors over the channels of a row. If the operator computes each item on its own, as maps of
    /// rotors do, tensors of few channels may be seen as fewer rows that are longer. The elements, and their order,
    /// are the same.
    ///
    /// ```
    /// use flashcliff::rotor::{RotorMap, Rotors};
    /// use flashcliff::{Algebra, Signature};
    ///
    /// let rotors = Rotors::new(Algebra::new(Signature::new(3, 0, 0)?)?)?;
    /// let exp = rotors.operator(RotorMap::Exp)?.ok_or("space has bivectors")?;
    /// let dims = exp.in_long_rows(&exp.bind(&[&[3, 4096, 2]])?);
    /// assert_eq!((dims.batch, dims.in_channels), (32, 256));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_long_rows(&self, dims: &Dims) -> Dims {
        let is_of_items = self.lanes().is_some_and(LaneOperator::is_of_items);
        let items = dims.batch * dims.in_channels;
        if !is_of_items || dims.in_channels >= LONG_ROW || items == 0 {
            return *dims;
        }
        let channels = row_of(items);
        Dims {
            batch: items / channels,
            in_channels: channels,
            out_channels: channels,
            ..*dims
        }
    }
}

/// The items of a row.
fn row_of(items: usize) -> usize {
    let lengths = LONG_ROW..=LONGEST_ROW.min(items / 2);
    let mut whole = lengths.clone().step_by(VECTOR);
    let found = whole.find(|length| items.is_multiple_of(*length));
    let mut lengths = lengths;
    let found = found.or_else(|| lengths.find(|length| items.is_multiple_of(*length)));
    found.unwrap_or(items)
}

#[cfg(test)]
mod tests {
    use super::{LONG_ROW, LONGEST_ROW, row_of};

    #[test]
    fn rows_are_long_and_share_the_items() {
        for (items, row) in [(1, 1), (500, 500), (512, 256), (771, 257), (8192, 256)] {
            assert_eq!(row_of(items), row);
        }
        // Primes have one row.
        assert_eq!(row_of(8191), 8191);
        for items in 1..3000 {
            let row = row_of(items);
            assert!(items.is_multiple_of(row));
            assert!(row == items || (LONG_ROW..=LONGEST_ROW).contains(&row));
        }
    }
}
