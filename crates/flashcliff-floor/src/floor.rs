//! The floor: the time that moving bytes takes.

use flashcliff_kernels::simd::{Scalar, Tier, Vector};
use rayon::prelude::*;

use crate::compute::widest;
use crate::values;

/// The number of elements that a task adds at a time.
const BLOCK: usize = 1 << 14;

/// The size in bytes from which on outputs do not stay in the caches, and are written past them.
const STREAM_BYTES: usize = 8 << 20;

/// The tensors of an addition `o = x + y`, which moves three tensors.
#[derive(Debug)]
pub struct Floor {
    x: Vec<f32>,
    y: Vec<f32>,
    o: Vec<f32>,
}

impl Floor {
    /// An addition that moves at least this many bytes.
    pub fn of_bytes(bytes: usize) -> Self {
        let len = bytes.div_ceil(3 * size_of::<f32>());
        Self {
            x: values(len, 1),
            y: values(len, 2),
            o: vec![0.0; len],
        }
    }

    /// Copies `x` to the output once, by as many threads as an addition has: two tensors are moved.
    pub fn copy(&mut self) {
        let blocks = self.o.par_chunks_mut(BLOCK).zip(self.x.par_chunks(BLOCK));
        blocks.for_each(|(o, x)| o.copy_from_slice(x));
    }

    /// The bytes that [`Self::run`] moves.
    pub fn bytes(&self) -> usize {
        3 * size_of_val(&self.o[..])
    }

    /// Adds once, on the widest vectors of the CPU, without other threads.
    pub fn run_alone(&mut self) {
        let stream = size_of_val(&self.o[..]) >= STREAM_BYTES;
        add(widest(), stream, &mut self.o, &self.x, &self.y);
    }

    /// Adds once, on the widest vectors of the CPU, with all threads if there is more than one block.
    pub fn run(&mut self) {
        let tier = widest();
        let stream = size_of_val(&self.o[..]) >= STREAM_BYTES;
        if self.o.len() <= BLOCK {
            return self.run_alone();
        }
        let inputs = self.x.par_chunks(BLOCK).zip(self.y.par_chunks(BLOCK));
        let blocks = self.o.par_chunks_mut(BLOCK).zip(inputs);
        blocks.for_each(|(o, (x, y))| add(tier, stream, o, x, y));
    }
}

fn add(tier: Tier, stream: bool, o: &mut [f32], x: &[f32], y: &[f32]) {
    match tier {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `widest` returns a tier that this CPU supports.
        Tier::Avx512 => unsafe { add_avx512(stream, o, x, y) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the same holds as above.
        Tier::Avx2 => unsafe { add_avx2(stream, o, x, y) },
        // SAFETY: the scalar tier runs everywhere; its loops vectorise for the baseline.
        _ => unsafe { add_vectors::<Scalar<f32>>(stream, o, x, y) },
    }
}

/// # Safety
/// The CPU has the features of the tier.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_avx512(stream: bool, o: &mut [f32], x: &[f32], y: &[f32]) {
    // SAFETY: this function is compiled for the tier.
    unsafe { add_vectors::<flashcliff_kernels::simd::avx512::F32x16>(stream, o, x, y) }
}

/// # Safety
/// The CPU has the features of the tier.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_avx2(stream: bool, o: &mut [f32], x: &[f32], y: &[f32]) {
    // SAFETY: this function is compiled for the tier.
    unsafe { add_vectors::<flashcliff_kernels::simd::avx2::F32x8>(stream, o, x, y) }
}

/// # Safety
/// The CPU supports the tier of `V`.
#[inline(always)]
unsafe fn add_vectors<V: Vector<Elem = f32>>(stream: bool, o: &mut [f32], x: &[f32], y: &[f32]) {
    let len = o.len().min(x.len()).min(y.len());
    let head = o.as_ptr().align_offset(size_of::<V>()).min(len);
    let tail = head + (len - head) / V::LANES * V::LANES;
    for i in (0..head).chain(tail..len) {
        o[i] = x[i] + y[i];
    }
    for i in (head..tail).step_by(V::LANES) {
        // SAFETY: whole vectors inside all three slices; `o` is aligned to the vector from `head` on.
        unsafe {
            let sum = V::load(x.as_ptr().add(i)).add(V::load(y.as_ptr().add(i)));
            let to = o.as_mut_ptr().add(i);
            match stream {
                true => sum.stream(to),
                false => sum.store(to),
            }
        }
    }
    // SAFETY: no memory is accessed.
    unsafe { V::stream_fence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_adds() {
        for len in [0, 1, 7, 100, BLOCK + 3, STREAM_BYTES / 4 + 5] {
            let mut floor = Floor::of_bytes(12 * len);
            floor.run();
            assert_eq!(floor.o.len(), len);
            let sums = floor.x.iter().zip(&floor.y).map(|(x, y)| x + y);
            assert!(floor.o.iter().copied().eq(sums), "{len}");
            assert_eq!(floor.bytes(), 12 * len);
            floor.o.fill(0.0);
            floor.run_alone();
            let sums = floor.x.iter().zip(&floor.y).map(|(x, y)| x + y);
            assert!(floor.o.iter().copied().eq(sums), "{len}");
            floor.copy();
            assert_eq!(floor.o, floor.x);
        }
    }
}
