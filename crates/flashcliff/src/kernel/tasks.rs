//! Spreads chunks of work over threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::threads;

/// How a batch is cut into chunks of rows.
///
/// It depends on the shape alone and never on the number of threads. Each chunk has its own partial sums, which are
/// added up in the order of the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    batch: usize,
    rows: usize,
}

/// The largest number of chunks of a batch. It bounds the memory of partial sums.
const MAX_CHUNKS: usize = 64;
/// The smallest number of operations that is worth handing to a thread.
const MIN_CHUNK_FLOPS: usize = 1 << 20;

impl Chunks {
    /// Cuts a batch whose rows cost `row_flops` each.
    pub(crate) fn new(batch: usize, row_flops: usize) -> Self {
        let worthwhile = MIN_CHUNK_FLOPS.div_ceil(row_flops.max(1));
        let rows = batch
            .div_ceil(MAX_CHUNKS)
            .max(worthwhile)
            .clamp(1, batch.max(1));
        Self { batch, rows }
    }

    /// Cuts a batch into chunks of `rows` rows.
    pub(crate) fn of_rows(batch: usize, rows: usize) -> Self {
        Self {
            batch,
            rows: rows.max(1),
        }
    }

    pub(crate) fn count(self) -> usize {
        self.batch.div_ceil(self.rows)
    }

    pub(crate) fn range(self, chunk: usize) -> std::ops::Range<usize> {
        let start = chunk * self.rows;
        start..(start + self.rows).min(self.batch)
    }
}

/// How many tasks run at once for `chunks` chunks.
pub(crate) fn task_count(chunks: usize) -> usize {
    if chunks <= 1 {
        return chunks;
    }
    threads::count().min(chunks)
}

/// Runs `work(task state, chunk)` for every chunk. Each of the `tasks` takes the next free chunk
/// until none is left and keeps one state, made by splitting `states` evenly.
pub(crate) fn run<T: Send>(
    chunks: usize,
    states: &mut [T],
    state_len: usize,
    work: impl Fn(&mut [T], usize) + Sync,
) {
    if chunks == 0 {
        return;
    }
    let tasks = task_count(chunks);
    let next = AtomicUsize::new(0);
    let drain = |state: &mut [T]| {
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                break;
            }
            work(state, chunk);
        }
    };
    let states = &mut states[..state_len * tasks];
    threads::each_part(states, [tasks, state_len], |_, state| drain(state));
}

/// Runs `work(part, elements)` for every part of `len` elements; the last may be shorter.
pub(crate) fn run_parts<T: Send>(
    data: &mut [T],
    len: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let parts = data.len().div_ceil(len);
    let share = parts.div_ceil(task_count(parts).max(1)).max(1);
    let shares = parts.div_ceil(share);
    threads::each_part(data, [shares, share * len], |index, data| {
        let first = index * share;
        for (part, data) in data.chunks_mut(len).enumerate() {
            work(first + part, data);
        }
    });
}
