//! Random numbers for measurements, the same in every run.

/// Random numbers by a linear congruential generator: good enough to multiply, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A random number in [-1, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        let Self(state) = self;
        *state = state.wrapping_mul(6_364_136_223_846_793_005);
        *state = state.wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// `len` random numbers in [-scale, scale).
    pub(crate) fn numbers(&mut self, len: usize, scale: f64) -> Vec<f64> {
        (0..len).map(|_| scale * self.unit()).collect()
    }
}
