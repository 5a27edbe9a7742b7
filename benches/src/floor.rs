//! The floor: the time it takes to move as many bytes as an operator must.

use flashcliff::simd::{Scalar, Tier, Vector};
use rayon::prelude::*;

/// Tensors for a streaming addition `o = x + y`, which moves three of them.
///
/// All threads take part, and the sum is written past the caches where the CPU can do that, as the
/// operators write large outputs: without it a store would first read what it overwrites.
pub struct Floor {
    x: Vec<f32>,
    y: Vec<f32>,
    o: Vec<f32>,
}

/// Elements a task adds at a time.
const BLOCK: usize = 1 << 14;

impl Floor {
    /// An addition that moves at least `bytes` bytes.
    pub fn of_bytes(bytes: usize) -> Self {
        let len = bytes.div_ceil(3 * size_of::<f32>());
        Self {
            x: crate::values(len, 1),
            y: crate::values(len, 2),
            o: vec![0.0; len],
        }
    }

    /// Adds once.
    pub fn run(&mut self) {
        let tier = Tier::best();
        let blocks = self.o.par_chunks_mut(BLOCK);
        let inputs = self.x.par_chunks(BLOCK).zip(self.y.par_chunks(BLOCK));
        blocks
            .zip(inputs)
            .for_each(|(o, (x, y))| add(tier, o, x, y));
    }
}

fn add(tier: Tier, o: &mut [f32], x: &[f32], y: &[f32]) {
    match tier {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Tier::best` returns a tier that this CPU supports.
        Tier::Avx512 => unsafe { add_avx512(o, x, y) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Tier::Avx2 => unsafe { add_avx2(o, x, y) },
        // SAFETY: the scalar tier runs everywhere.
        _ => unsafe { add_vectors::<Scalar<f32>>(o, x, y) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_avx512(o: &mut [f32], x: &[f32], y: &[f32]) {
    // SAFETY: this function is compiled for the tier.
    unsafe { add_vectors::<flashcliff::simd::avx512::F32x16>(o, x, y) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_avx2(o: &mut [f32], x: &[f32], y: &[f32]) {
    // SAFETY: this function is compiled for the tier.
    unsafe { add_vectors::<flashcliff::simd::avx2::F32x8>(o, x, y) }
}

/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
unsafe fn add_vectors<V: Vector<Elem = f32>>(o: &mut [f32], x: &[f32], y: &[f32]) {
    let len = o.len().min(x.len()).min(y.len());
    let vector = size_of::<V>();
    let head = (o.as_ptr().addr().wrapping_neg() % vector / size_of::<f32>()).min(len);
    let tail = head + (len - head) / V::LANES * V::LANES;
    for i in (0..head).chain(tail..len) {
        o[i] = x[i] + y[i];
    }
    for i in (head..tail).step_by(V::LANES) {
        // SAFETY: whole vectors inside all three slices; `o` is aligned from `head` on.
        unsafe {
            let sum = V::load(x.as_ptr().add(i)).add(V::load(y.as_ptr().add(i)));
            sum.stream(o.as_mut_ptr().add(i));
        }
    }
    // SAFETY: no memory is accessed.
    unsafe { V::stream_fence() };
}
