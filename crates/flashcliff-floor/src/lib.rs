//! The floor that the benchmarks and `flashcliff bench` compare every time with, the ceiling of arithmetic, and data for both.

mod compute;
mod floor;

pub use compute::{Width, multiply_add};
pub use floor::Floor;

/// Deterministic values in (-1, 1), never zero: zeros hide work and can be faster.
pub fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fill_the_open_interval() {
        let values = values(10_000, 3);
        assert!(values.iter().all(|v| v.abs() < 1.0 && *v != 0.0));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.05, "{mean}");
        assert!(values.iter().any(|v| *v > 0.99) && values.iter().any(|v| *v < -0.99));
    }
}
