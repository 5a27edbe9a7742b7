//! The threads that operators on the CPU use, one rule for the program, Rust and Python.
//!
//! An operator with enough work shares it among
//!
//! 1. the rayon pool that it is called in, if it is called in one (`ThreadPool::install`);
//! 2. else as many threads as [`set`] said: `--threads` of the program, `flashcliff.set_num_threads` in Python;
//! 3. else the threads of rayon's global pool, if the Rust program has started it;
//! 4. else as many as the environment says: `RAYON_NUM_THREADS`, or else `OMP_NUM_THREADS`
//!    ([`environment`](crate::environment) says how they are read);
//! 5. else one for each CPU that the process may use.
//!
//! In Python a number that PyTorch was given, by `torch.set_num_threads` or by itself, is a ceiling of 4 and 5: an
//! operator takes no more threads than those of PyTorch do, in the workers of a data loader say, unless
//! `flashcliff.set_num_threads` was called.
//!
//! Numbers of 2, 4 and 5 are at most [`limit`], eight for each CPU; [`Choice::note`] says where one was larger, and
//! a warning of the crate `log`. Results do not depend on the number, not in a bit.
//!
//! Threads are started by the first operator that has work for them, or by [`start`]. Where the system allows fewer, an
//! operator runs on those, or on the calling thread alone. A process that was forked runs operators on the calling
//! thread, unless it calls [`set`]; it may be forked while other threads run operators.

mod choice;
mod workers;

use std::cell::Cell;

use crate::Error;

pub use choice::{Choice, Source, limit};
pub(crate) use workers::{each, note_process};

/// What is in force outside of rayon pools.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing.
pub fn choice() -> Result<Choice, Error> {
    workers::choice()
}

/// Makes operators use a number of threads, which are started.
///
/// If rayon's global pool has not been started it is now, with this number: what else uses rayon then does, too.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing, [`Error::InvalidOption`] for no thread, [`Error::Threads`] if
/// the system refuses so many; what was in force before still is.
pub fn set(threads: usize) -> Result<Choice, Error> {
    workers::set(threads)
}

/// Whether [`set`] was called, in this process or in one that it was forked from.
pub fn is_set() -> bool {
    workers::is_set()
}

/// Starts the threads that are in force, which otherwise the first large operator does.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing, [`Error::Threads`] if the system refuses so many.
pub fn start() -> Result<Choice, Error> {
    workers::start()
}

/// The threads that an operator uses that is called here: of the current rayon pool, or else those that are
/// in force. Starts them.
pub fn count() -> usize {
    let call = CALL.get();
    if call.decided > 0 {
        return call.decided;
    }
    let pool = match rayon::current_thread_index() {
        Some(_) => rayon::current_num_threads(),
        None if call.ceiling == 1 => 1,
        None => workers::count(),
    };
    let count = pool.clamp(1, call.ceiling);
    if call.lasting {
        CALL.set(Call {
            decided: count,
            ..call
        });
    }
    count
}

/// Runs work, whose operators use at most a number of threads, and all the same number.
pub fn at_most<T>(ceiling: usize, work: impl FnOnce() -> T) -> T {
    let outer = CALL.get();
    let _restored = Restored(outer);
    CALL.set(Call {
        ceiling: ceiling.clamp(1, outer.ceiling),
        lasting: true,
        decided: 0,
    });
    work()
}

/// Runs work in which [`count`] does not change, once asked: the size of a workspace and what is done with it must agree.
pub(crate) fn steady<T>(work: impl FnOnce() -> T) -> T {
    if CALL.get().lasting {
        return work();
    }
    at_most(usize::MAX, work)
}

/// Forgets the threads of the parent process.
///
/// A forked process notices by its number, so this is for one that may have the number of its parent, in a PID
/// namespace of its own.
pub fn after_fork() {
    workers::after_fork();
}

/// What calls on a thread go by.
#[derive(Clone, Copy)]
struct Call {
    /// The most threads.
    ceiling: usize,
    /// Whether a number, once decided on, stays.
    lasting: bool,
    /// The number decided on, or 0.
    decided: usize,
}

thread_local! {
    static CALL: Cell<Call> = const {
        Cell::new(Call { ceiling: usize::MAX, lasting: false, decided: 0 })
    };
}

/// Brings back what was in force, also after a panic.
struct Restored(Call);

impl Drop for Restored {
    fn drop(&mut self) {
        CALL.set(self.0);
    }
}
