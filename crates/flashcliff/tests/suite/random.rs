//! Test data from a small generator in this file, so that the data never change under a test.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform random number in [-1, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// `len` values in [-2, 2) that `f32` holds exactly, so that both element types get the same.
    pub(crate) fn reals(&mut self, len: usize) -> Vec<f64> {
        (0..len)
            .map(|_| f64::from((2.0 * self.unit()) as f32))
            .collect()
    }

    /// `len` integers from -3 to 3, none of them zero.
    pub(crate) fn integers(&mut self, len: usize) -> Vec<f64> {
        let one = |bits: u64| {
            let size = (bits >> 1) % 3 + 1;
            if bits & 1 == 0 {
                size as f64
            } else {
                -(size as f64)
            }
        };
        (0..len).map(|_| one(self.next() >> 20)).collect()
    }
}
