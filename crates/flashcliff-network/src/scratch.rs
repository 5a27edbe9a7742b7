//! Reusable buffers for values that never become tensors of a host: workspaces, saved rows, inner activations.
//! Networks on the CPU and hosts share one pool.
//!
//! A scratch buffer lives for one call or for one graph. Taking it from the system each time costs a page fault for every
//! 4 KiB, which takes longer than the arithmetic for the activations of a small model. A returned buffer keeps its old
//! contents: kernels write before they read.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most bytes of one element type that stay in the pool. Buffers that are returned beyond this are freed.
const KEPT_BYTES: usize = 256 << 20;

/// The free buffers of one element type.
#[derive(Debug)]
pub struct Pool<T> {
    free: Mutex<Vec<Vec<T>>>,
}

impl<T> Pool<T> {
    const fn new() -> Self {
        Self {
            free: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<T>>> {
        // No code that can panic runs under the lock, so the list is whole even if the lock is marked poisoned.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a line of caches. Buffers begin with one, so that rows of as many bytes are vectors in one line.
const LINE: usize = 64;

/// An element type with a pool.
pub trait Pooled: Copy + Send + Sync + Sized + 'static {
    /// The pool that all threads share.
    #[doc(hidden)]
    fn pool() -> &'static Pool<Self>;
}

macro_rules! pooled {
    ($($scalar:ty),*) => {$(
        impl Pooled for $scalar {
            fn pool() -> &'static Pool<Self> {
                static POOL: Pool<$scalar> = Pool::new();
                &POOL
            }
        }
    )*};
}
pooled!(f32, f64);

/// A buffer that returns to the pool when it is dropped. Its contents are arbitrary until they are written.
#[derive(Debug)]
pub struct Buffer<T: Pooled> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Pooled + Default> Buffer<T> {
    /// A buffer of `len` elements: the smallest free one that is large enough, or a new one.
    pub fn take(len: usize) -> Self {
        if len == 0 {
            return Self {
                data: Vec::new(),
                start: 0,
                len,
            };
        }
        let whole = len + LINE / size_of::<T>();
        let mut free = T::pool().lock();
        let best = (0..free.len())
            .filter(|&i| free[i].len() >= whole)
            .min_by_key(|&i| free[i].len());
        let data = match best {
            Some(i) => free.swap_remove(i),
            None => {
                drop(free);
                vec![T::default(); whole]
            }
        };
        // An offset that cannot be found out is a large one.
        let start = data.as_ptr().align_offset(LINE).min(whole - len);
        Self { data, start, len }
    }
}

impl<T: Pooled> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data[self.start..][..self.len]
    }
}

impl<T: Pooled> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..][..self.len]
    }
}

impl<T: Pooled> Drop for Buffer<T> {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return;
        }
        let mut free = T::pool().lock();
        let kept: usize = free.iter().map(Vec::len).sum();
        if (kept + data.len()) * size_of::<T>() <= KEPT_BYTES {
            free.push(data);
        }
    }
}

/// Frees every pooled buffer that nothing holds, and the memory that layers of the library keep.
pub fn release_scratch() {
    flashcliff::memory::release();
    f32::pool().lock().clear();
    f64::pool().lock().clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    // Other tests of this process share the pools of floats, and may fill them.
    pooled!(u8);

    #[test]
    fn a_buffer_has_the_length_asked_for_and_is_reused() {
        let mut first = Buffer::<u8>::take(100_003);
        first[100_002] = 7;
        let at = first.as_ptr();
        drop(first);
        let second = Buffer::<u8>::take(100_001);
        assert_eq!(second.len(), 100_001);
        assert_eq!(second.as_ptr(), at);
    }

    #[test]
    fn an_empty_buffer_never_enters_the_pool() {
        drop(Buffer::<f32>::take(0));
        assert!(f32::pool().lock().iter().all(|free| !free.is_empty()));
    }
}
