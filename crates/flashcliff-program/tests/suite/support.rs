//! Algebras, operators and random data for tests.

use cayley::{Algebra, Signature};
use flashcliff_program::spec::{self, Operator};

pub(crate) fn algebra(p: usize, q: usize, r: usize) -> Algebra {
    Algebra::new(Signature::of(p, q, r))
}

/// The program of a name for an algebra, between full multivectors.
pub(crate) fn operator(algebra: &Algebra, name: &str) -> Operator {
    let mut all = spec::operators(algebra).into_iter();
    all.find(|op| op.program.name == name)
        .expect("an operator of that name")
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// `len` values in [-scale, scale).
    pub(crate) fn reals(&mut self, len: usize, scale: f64) -> Vec<f64> {
        let unit = |bits: u64| (bits >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        (0..len).map(|_| scale * unit(self.next())).collect()
    }

    /// `len` integers from -4 to 5 without zero.
    pub(crate) fn integers(&mut self, len: usize) -> Vec<f64> {
        let value = |bits: u64| (bits >> 33) as i64 % 9 - 4;
        let skip_zero = |v: i64| if v >= 0 { v + 1 } else { v };
        (0..len)
            .map(|_| skip_zero(value(self.next())) as f64)
            .collect()
    }
}
