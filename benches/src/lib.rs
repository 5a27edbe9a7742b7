//! What the benchmarks share: the floor that every time is set beside, and data.

mod floor;

pub use floor::Floor;

/// Deterministic values in (-1, 1), never zero: zeros hide work and can be faster.
pub fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1 << 24) as f32;
        2.0 * unit - 1.0 + f32::EPSILON
    };
    (0..len).map(|_| next()).collect()
}
