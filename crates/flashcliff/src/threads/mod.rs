//! The threads that operators on the CPU use. The rule is the same for the program, Rust and Python.
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
//! In Python the number of PyTorch's threads, set by `torch.set_num_threads` or by PyTorch itself, is a ceiling of 4
//! and 5: an operator takes no more threads than PyTorch's own operators do, in the workers of a data loader for
//! example, unless `flashcliff.set_num_threads` was called.
//!
//! The numbers of 2, 4 and 5 are at most [`limit`], eight for each CPU. If a larger number was asked for,
//! [`Choice::note`] and a warning of the crate `log` say so. Results do not depend on the number of threads, bit for
//! bit.
//!
//! Threads are started by the first operator that has work for them, or by [`start`]. If the system allows fewer
//! threads, an operator runs on those, or on the calling thread alone. A forked process runs operators on the calling
//! thread, unless it calls [`set`]. A process may be forked while other threads run operators.

mod choice;
mod parts;
mod workers;

use std::cell::Cell;

use crate::Error;

pub use choice::{Choice, Source, limit};
pub(crate) use workers::{each, each_part, note_process};

/// The choice that is in force outside of rayon pools.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing.
pub fn choice() -> Result<Choice, Error> {
    workers::choice()
}

/// Sets the number of threads that operators use, and starts them.
///
/// If rayon's global pool has not been started, it is started now with this number of threads. Other code that uses
/// rayon then uses this pool too.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing, [`Error::InvalidOption`] for 0 threads, [`Error::Threads`]
/// if the system refuses so many. After an error the former choice is still in force.
pub fn set(threads: usize) -> Result<Choice, Error> {
    workers::set(threads)
}

/// Whether [`set`] was called, in this process or in one it was forked from.
pub fn is_set() -> bool {
    workers::is_set()
}

/// Starts the threads that are in force. Otherwise the first large operator starts them.
///
/// # Errors
/// [`Error::Environment`] for a variable that means nothing, [`Error::Threads`] if the system refuses so many.
pub fn start() -> Result<Choice, Error> {
    workers::start()
}

/// The number of threads that an operator called here uses: the threads of the current rayon pool, else the number that
/// is in force. Starts them.
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

/// Runs work whose operators use at most `ceiling` threads. All of them use the same number.
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

/// Runs work that calls operators many times on one of the threads that they share their work among.
///
/// An operator that another thread calls hands its work over, and waits. Here it begins with one part itself, and
/// others take the rest if they are awake in time. The number of threads is that of the calling thread. Work that
/// operators would do on one thread stays on the calling thread.
///
/// ```
/// use flashcliff::threads;
///
/// let sum: f64 = threads::together(|| (1..=4).map(f64::from).sum());
/// assert_eq!(sum, 10.0);
/// ```
pub fn together<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if rayon::current_thread_index().is_some() {
        return work();
    }
    match count() {
        1 => work(),
        ceiling => workers::within(move || at_most(ceiling, work)),
    }
}

/// Runs work on every item, shared among the threads that an operator called here would use.
///
/// Operators that the work calls run on one thread each, if more than one item is shared. Results do not depend on the
/// number of threads if items do not depend on each other.
///
/// ```
/// let mut squares = [0; 5];
/// flashcliff::threads::for_each(squares.iter_mut().enumerate(), |(i, square)| *square = i * i);
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// ```
pub fn for_each<I: Send>(items: impl ExactSizeIterator<Item = I> + Send, work: impl Fn(I) + Sync) {
    if items.len() <= 1 || count() == 1 {
        return items.for_each(work);
    }
    each(items, |item| at_most(1, || work(item)));
}

/// Runs work on parts of a slice, each of so many elements but for the last one, like [`for_each`]. In contrast to
/// that it allocates nothing. Work gets the number of its part.
///
/// ```
/// let mut numbers = [0; 5];
/// flashcliff::threads::for_each_part(&mut numbers, 2, |part, own| own.fill(part));
/// assert_eq!(numbers, [0, 0, 1, 1, 2]);
/// ```
pub fn for_each_part<T: Send>(
    data: &mut [T],
    elements: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let parts = data.len().div_ceil(elements.max(1));
    if parts <= 1 || count() == 1 {
        let all = data.chunks_mut(elements.max(1)).enumerate();
        return all.for_each(|(part, own)| work(part, own));
    }
    workers::each_part(data, [parts, elements], |part, own| {
        at_most(1, || work(part, own));
    });
}

/// Runs work in which [`count`] does not change after the first call: the size of a workspace and the work in it must
/// agree.
pub(crate) fn steady<T>(work: impl FnOnce() -> T) -> T {
    if CALL.get().lasting {
        return work();
    }
    at_most(usize::MAX, work)
}

/// Forgets the threads of the parent process.
///
/// A forked process usually notices the fork by its process number. This function is for a process that may have the
/// number of its parent, in its own PID namespace.
pub fn after_fork() {
    workers::after_fork();
}

/// The settings that calls on a thread follow.
#[derive(Clone, Copy)]
struct Call {
    /// The largest number of threads.
    ceiling: usize,
    /// Whether the number of threads stays, once it is decided.
    lasting: bool,
    /// The number that was decided on, or 0.
    decided: usize,
}

thread_local! {
    static CALL: Cell<Call> = const {
        Cell::new(Call { ceiling: usize::MAX, lasting: false, decided: 0 })
    };
}

/// Restores the former settings when dropped, also after a panic.
struct Restored(Call);

impl Drop for Restored {
    fn drop(&mut self) {
        CALL.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn work_together_has_the_threads_of_its_caller() {
        for ceiling in [1, 2, usize::MAX] {
            at_most(ceiling, || {
                let of_caller = count();
                let (inside, is_in_pool) =
                    together(|| (count(), rayon::current_thread_index().is_some()));
                assert_eq!(inside, of_caller, "at most {ceiling}");
                assert_eq!(is_in_pool, of_caller > 1, "at most {ceiling}");
                assert_eq!(together(|| together(count)), of_caller);
            });
        }
    }

    #[test]
    fn work_together_shares_itself_out_again() {
        let mut squares = vec![0; 100];
        together(|| {
            for_each_part(&mut squares, 7, |part, own| {
                for (at, square) in own.iter_mut().enumerate() {
                    *square = (7 * part + at).pow(2);
                }
            });
        });
        assert!(squares.iter().enumerate().all(|(at, own)| *own == at * at));
    }

    #[test]
    fn a_panic_of_work_together_reaches_its_caller() {
        let caught = catch_unwind(|| together(|| panic!("told")));
        let payload = caught
            .map(|()| "nothing")
            .unwrap_or_else(|own| own.downcast_ref::<&str>().copied().unwrap_or("another"));
        assert_eq!(payload, "told");
        assert_eq!(together(|| 5), 5);
    }
}
