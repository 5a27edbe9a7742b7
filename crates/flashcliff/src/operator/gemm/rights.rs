//! Right factors that are copied once for many sums. Their memory is used again: from the system it would come page by page, which takes
//! longer than copies for a product of few rows.

use std::mem::take;
use std::sync::{MutexGuard, TryLockError};

use super::tile::{self, Copied, Right, Shape};
use super::{Gemm, LINE, Matrix, Product, packed_len};
use crate::Element;

/// The most bytes of one element type that nobody has and that are kept.
const KEPT_BYTES: usize = 256 << 20;

/// Right factors that are copied once for many sums.
#[derive(Debug)]
pub(crate) struct Rights<T> {
    data: Vec<T>,
    /// The first element of each, and its rows.
    factors: Vec<(usize, usize)>,
    /// Takes the memory in the end.
    keep: fn(Vec<T>),
}

impl<T: Element> Rights<T> {
    /// Copies of factors, each with its sizes `k x n` and a number that it is multiplied by.
    ///
    /// # Safety
    /// The matrices are valid for their sizes.
    pub(crate) unsafe fn new(factors: &[((usize, usize), Matrix<T>, T)]) -> Self {
        let shape = Shape::best::<T>();
        let line = LINE / size_of::<T>();
        let len = |sizes| packed_len(sizes, shape).next_multiple_of(line);
        let mut data: Vec<T> = memory(factors.iter().map(|own| len(own.0)).sum::<usize>() + line);
        // An offset that cannot be found out is a large one.
        let mut at = data.as_ptr().align_offset(LINE).min(line);
        let mut rest = &mut data[at..];
        let mut places = Vec::with_capacity(factors.len());
        for group in factors.chunk_by(|a, b| a.0 == b.0) {
            let mut copies = Vec::with_capacity(group.len());
            for &(sizes, from, factor) in group {
                let (own, others) = rest.split_at_mut(len(sizes));
                rest = others;
                copies.push(Copied {
                    from,
                    factor,
                    to: own,
                });
                places.push((at, sizes.0));
                at += len(sizes);
            }
            // SAFETY: the caller promises it.
            unsafe { tile::pack(group[0].0, shape, &mut copies) };
        }
        Self {
            data,
            factors: places,
            keep,
        }
    }

    /// The product of a left factor with one of them.
    pub(crate) fn product(&self, a: Matrix<T>, right: usize) -> Product<T> {
        let (at, k) = self.factors[right];
        Product {
            a,
            b: Right::Packed(self.data[at..].as_ptr()),
            k,
        }
    }
}

impl<T> Drop for Rights<T> {
    fn drop(&mut self) {
        (self.keep)(take(&mut self.data));
    }
}

/// The memory that nobody has. `None` while another thread looks, and in a process that was forked meanwhile.
fn spare<T: Gemm>() -> Option<MutexGuard<'static, Vec<Vec<T>>>> {
    match T::spare().try_lock() {
        Ok(spare) => Some(spare),
        // The list is whole even after a panic.
        Err(TryLockError::Poisoned(spare)) => Some(spare.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Memory of so many elements or more, with anything in it: the smallest that is large enough.
fn memory<T: Element>(len: usize) -> Vec<T> {
    let found = spare::<T>().and_then(|mut spare| {
        let fitting = (0..spare.len()).filter(|&at| spare[at].len() >= len);
        let best = fitting.min_by_key(|&at| spare[at].len());
        best.map(|at| spare.swap_remove(at))
    });
    found.unwrap_or_else(|| vec![T::default(); len])
}

fn keep<T: Gemm>(memory: Vec<T>) {
    let Some(mut spare) = spare::<T>() else {
        return;
    };
    let kept: usize = spare.iter().map(Vec::len).sum();
    if (kept + memory.len()) * size_of::<T>() <= KEPT_BYTES {
        spare.push(memory);
    }
}

/// Frees all memory that nobody has.
pub(crate) fn release() {
    fn clear<T: Gemm>() {
        if let Some(mut spare) = spare::<T>() {
            spare.clear();
        }
    }
    clear::<f32>();
    clear::<f64>();
}
