//! Fixed random numbers.

use crate::dropout;

/// Random numbers, in order.
pub(super) struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    fn bits(&mut self) -> u64 {
        self.drawn += 1;
        dropout::number(self.seed, self.drawn)
    }

    /// A number from -1 to 1.
    pub(super) fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// An index below a length.
    pub(super) fn below(&mut self, len: usize) -> usize {
        (self.bits() % len as u64) as usize
    }
}
