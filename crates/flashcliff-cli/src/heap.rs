//! Counts the bytes on the heap, for `flashcliff bench`, and keeps freed memory.
//!
//! The allocator of the program passes every call on to the system's allocator. It counts only between [`count`] and the end of the
//! returned [`Count`]; at other times an allocation costs one more load of a flag. Crates for this purpose clear memory by hand and copy to
//! grow it, which would slow everything down.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

use flashcliff_candle::op::release_scratch;

use crate::error::Error;

#[global_allocator]
static HEAP: Counting = Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
/// The number of bytes now. It is below zero if more memory of earlier times was freed than new memory allocated.
static NOW: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
/// All bytes that were asked for, freed or not.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// The largest block that was asked for.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// Counts an allocation, unless it failed.
fn changed(block: *mut u8, bytes: isize) -> *mut u8 {
    if !block.is_null() {
        change(bytes);
    }
    block
}

fn change(bytes: isize) {
    if COUNTS.load(Ordering::Relaxed) {
        let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(now, Ordering::Relaxed);
        ASKED.fetch_add(bytes.max(0).unsigned_abs(), Ordering::Relaxed);
        LARGEST.fetch_max(bytes.max(0).unsigned_abs(), Ordering::Relaxed);
    }
}

/// The size of a block, which is at most `isize::MAX`.
fn signed(bytes: usize) -> isize {
    bytes as isize
}

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises it.
        changed(unsafe { System.alloc(layout) }, signed(layout.size()))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises it.
        let block = unsafe { System.alloc_zeroed(layout) };
        changed(block, signed(layout.size()))
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises it.
        let block = unsafe { System.realloc(block, layout, size) };
        changed(block, signed(size) - signed(layout.size()))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        change(-signed(layout.size()));
        // SAFETY: the caller promises it.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Counts until it is dropped. There may be only one at a time.
#[derive(Debug)]
pub(crate) struct Count(());

/// Starts to count from zero.
pub(crate) fn count() -> Count {
    NOW.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    ASKED.store(0, Ordering::Relaxed);
    LARGEST.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    Count(())
}

impl Count {
    /// The largest number of bytes on the heap at once since the start, for all threads.
    pub(crate) fn peak(&self) -> usize {
        PEAK.load(Ordering::Relaxed).max(0) as usize
    }

    /// The largest block that was asked for since the start.
    pub(crate) fn largest(&self) -> usize {
        LARGEST.load(Ordering::Relaxed)
    }

    /// The bytes that were asked for since the start, freed or not, for all threads. A block that grows counts by its growth only.
    pub(crate) fn asked(&self) -> usize {
        ASKED.load(Ordering::Relaxed)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        COUNTS.store(false, Ordering::Relaxed);
    }
}

/// Makes the C library keep what is freed, so that the next step gets memory whose pages are there. By default it
/// gives large blocks back to the system, and the pages of a step through candle's graph are then made anew in every
/// step, which takes longer than the step's arithmetic. Must be called before threads are started. Other libraries
/// keep their own rule.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn keep_freed() {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn mallopt(option: c_int, value: c_int) -> c_int;
    }
    /// The options, as `malloc.h` numbers them: memory at the end of the heap beyond which it is given back, and the
    /// size from which on blocks are no part of the heap. The library allows no more than 32 MiB for the latter.
    const OPTIONS: [(c_int, c_int); 2] = [(-1, c_int::MAX), (-3, 32 << 20)];
    for (option, value) in OPTIONS {
        // SAFETY: the function is that of the C library that this program is linked to; it takes any numbers, and no other thread allocates
        // meanwhile. An option that it refuses changes nothing.
        unsafe { mallopt(option, value) };
    }
}

/// Does nothing: how the C library keeps memory is its own rule.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep_freed() {}

/// The most bytes that training holds at once beyond what is held before, with its result.
///
/// For each thread the matrix products keep a buffer of the size of the L2 cache, for the life of the process; small
/// products use none of it. `warm`, a small step, runs on every thread and makes these buffers before the count
/// starts.
pub(crate) fn peak<T>(
    warm: impl Fn() -> Result<(), Error> + Sync,
    train: impl FnOnce() -> Result<T, Error>,
) -> Result<(usize, T), Error> {
    warm()?;
    let steps: Vec<Result<(), Error>> = rayon::broadcast(|_| warm());
    steps.into_iter().collect::<Result<(), Error>>()?;
    release_scratch();
    let heap = count();
    let trained = train()?;
    Ok((heap.peak(), trained))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    const LARGE: usize = 1 << 30;

    /// Other tests of this process allocate and free at the same time, but nothing near as large.
    fn near(got: usize, expected: usize) -> bool {
        got.abs_diff(expected) < LARGE / 16
    }

    #[test]
    fn the_peak_is_that_of_what_was_held_at_once() {
        let count = count();
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
        let one = count.peak();
        assert!(near(one, LARGE), "{one}");
        let mut grown = black_box(Vec::<u8>::with_capacity(LARGE));
        grown.reserve_exact(LARGE + LARGE / 2);
        let zeroed = black_box(vec![0_u8; LARGE]);
        drop((grown, zeroed));
        let more = count.peak();
        assert!(near(more, LARGE * 5 / 2), "{more}");
        let asked = count.asked();
        assert!(near(asked, LARGE * 9 / 2), "{asked}");
        assert!(near(count.largest(), LARGE), "{}", count.largest());
    }
}
