//! The ceiling of arithmetic: fused multiply-adds of registers, by all threads.

use flashcliff_kernels::simd::{Scalar, Tier, Vector};
use rayon::prelude::*;

/// The number of independent sums: enough to hide the latency of an addition in two units.
const SUMS: usize = 12;

/// A width of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// `f32`.
    Single,
    /// `f64`.
    Double,
}

/// Multiplies and adds `rounds` times in each of `threads` tasks, on the widest vectors of the CPU. Returns the number of operations, two
/// for each multiply-add.
pub fn multiply_add(width: Width, threads: usize, rounds: usize) -> usize {
    let tier = widest();
    let tasks = (0..threads.max(1)).into_par_iter();
    let lanes: usize = tasks.map(|_| run(tier, width, rounds)).sum();
    2 * SUMS * rounds * lanes
}

/// The widest tier that the CPU has, whatever tier operators are told to use.
pub(crate) fn widest() -> Tier {
    Tier::available().last().unwrap_or(Tier::Scalar)
}

/// Runs one task. Returns the number of lanes of its vectors.
fn run(tier: Tier, width: Width, rounds: usize) -> usize {
    match (tier, width) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `widest` returns a tier that this CPU supports.
        (Tier::Avx512, Width::Single) => unsafe { single_avx512(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the same holds as above.
        (Tier::Avx512, Width::Double) => unsafe { double_avx512(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the same holds as above.
        (Tier::Avx2, Width::Single) => unsafe { single_avx2(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the same holds as above.
        (Tier::Avx2, Width::Double) => unsafe { double_avx2(rounds) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the same holds as above; NEON needs no feature beyond the baseline.
        (Tier::Neon, Width::Single) => unsafe {
            rounds_of::<flashcliff_kernels::simd::neon::F32x4>(rounds)
        },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the same holds as above.
        (Tier::Neon, Width::Double) => unsafe {
            rounds_of::<flashcliff_kernels::simd::neon::F64x2>(rounds)
        },
        // SAFETY: the scalar tier runs everywhere.
        (_, Width::Single) => unsafe { rounds_of::<Scalar<f32>>(rounds) },
        // SAFETY: the same holds as above.
        (_, Width::Double) => unsafe { rounds_of::<Scalar<f64>>(rounds) },
    }
}

/// # Safety
/// The CPU has the features of the tier.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn single_avx512(rounds: usize) -> usize {
    // SAFETY: this function is compiled for the tier.
    unsafe { rounds_of::<flashcliff_kernels::simd::avx512::F32x16>(rounds) }
}

/// # Safety
/// The CPU has the features of the tier.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn double_avx512(rounds: usize) -> usize {
    // SAFETY: this function is compiled for the tier.
    unsafe { rounds_of::<flashcliff_kernels::simd::avx512::F64x8>(rounds) }
}

/// # Safety
/// The CPU has the features of the tier.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn single_avx2(rounds: usize) -> usize {
    // SAFETY: this function is compiled for the tier.
    unsafe { rounds_of::<flashcliff_kernels::simd::avx2::F32x8>(rounds) }
}

/// # Safety
/// The CPU has the features of the tier.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn double_avx2(rounds: usize) -> usize {
    // SAFETY: this function is compiled for the tier.
    unsafe { rounds_of::<flashcliff_kernels::simd::avx2::F64x4>(rounds) }
}

/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
unsafe fn rounds_of<V: Vector>(rounds: usize) -> usize {
    // SAFETY: the caller promises the tier; no memory is accessed.
    unsafe {
        // The factor keeps the sums bounded; the compiler must not know it.
        let factor = std::hint::black_box(V::from_f64(0.5));
        let mut sums = [V::from_f64(1.0); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = sum.mul_add(factor, factor);
            }
        }
        let mut all = V::zero();
        for sum in sums {
            all = all.add(sum);
        }
        std::hint::black_box(all.reduce_add());
    }
    V::LANES
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn operations_are_counted() {
        let single = multiply_add(Width::Single, 2, 10);
        assert_eq!(single, 2 * 2 * SUMS * 10 * widest().lanes_f32());
        let double = multiply_add(Width::Double, 1, 10);
        assert_eq!(double, 2 * SUMS * 10 * widest().lanes_f64());
    }

    /// A loop that the compiler removed would take no time at all.
    #[test]
    fn the_loop_is_there() {
        let start = Instant::now();
        let operations = multiply_add(Width::Single, 1, 100_000) as f64;
        // Two units of 16 lanes at 5 GHz do 3.2e11.
        assert!(operations / start.elapsed().as_secs_f64() < 2e12);
    }
}
