//! The threads of this process. They are started when there is work for them.
//!
//! Each process has its own [`Workers`], found by the number of the process. A forked process makes new ones and
//! computes on the calling thread. So it never waits for a lock that a thread of the parent held at the fork, and gives
//! no work to threads that are not there.

use std::error::Error as _;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::choice::Choice;
use super::parts::Parts;
use crate::Error;

/// The threads of one process.
struct Workers {
    process: u32,
    /// Whether the process was forked. Rayon's global pool is then its parent's.
    forked: bool,
    /// The number given to [`set`], or 0. The lock does not guard it, since forked processes read it.
    set: AtomicUsize,
    started: Mutex<Option<Started>>,
}

/// The threads that run, and why so many.
#[derive(Clone)]
struct Started {
    choice: Choice,
    pool: Pool,
}

#[derive(Clone)]
enum Pool {
    /// Rayon's global pool.
    Global,
    Own(Arc<ThreadPool>),
    /// No pool: only the calling thread works.
    Caller,
}

/// The workers of the process that used them last: this one, or the one that it was forked from.
static WORKERS: AtomicPtr<Workers> = AtomicPtr::new(ptr::null_mut());

fn workers() -> &'static Workers {
    let process = std::process::id();
    loop {
        let last = WORKERS.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or from `renew`, which leaks what it makes.
        match unsafe { last.as_ref() } {
            Some(workers) if workers.process == process => return workers,
            _ => renew(last, process),
        }
    }
}

/// Makes the workers of a process that has none, unless another thread of the process is faster.
fn renew(last: *mut Workers, process: u32) {
    // SAFETY: the same holds as in `workers`.
    let parent = unsafe { last.as_ref() };
    let set = parent.map_or(0, |parent| parent.set.load(Ordering::Relaxed));
    // The workers are never freed: other threads may hold them, and the threads of a parent cannot be joined here.
    let new = Box::into_raw(Box::new(Workers {
        process,
        forked: parent.is_some(),
        set: AtomicUsize::new(set),
        started: Mutex::new(None),
    }));
    let swapped = WORKERS.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire);
    if swapped.is_err() {
        // SAFETY: the box was made above and not published.
        drop(unsafe { Box::from_raw(new) });
    }
}

pub(super) fn after_fork() {
    let last = WORKERS.load(Ordering::Acquire);
    if !last.is_null() {
        renew(last, std::process::id());
    }
}

/// Notes this process, so that its forked children know that they are other processes.
pub(crate) fn note_process() {
    workers();
}

pub(super) fn choice() -> Result<Choice, Error> {
    let workers = workers();
    let started = workers.lock().as_ref().map(|s| s.choice.clone());
    started.map_or_else(|| workers.wanted(), Ok)
}

pub(super) fn is_set() -> bool {
    // A forked process has the number of its parent, so it does not matter whose workers these are, and the system need not be asked
    // for the number of the process, which takes as long as a small operator's checks.
    let last = WORKERS.load(Ordering::Acquire);
    // SAFETY: the same holds as in `workers`.
    unsafe { last.as_ref() }.is_some_and(|workers| workers.set.load(Ordering::Relaxed) > 0)
}

pub(super) fn count() -> usize {
    workers().started().choice.count()
}

pub(super) fn start() -> Result<Choice, Error> {
    let workers = workers();
    workers.wanted()?;
    let choice = workers.started().choice;
    match choice.refused() {
        None => Ok(choice),
        Some(reason) => Err(refusal(&choice, reason)),
    }
}

pub(super) fn set(threads: usize) -> Result<Choice, Error> {
    if threads == 0 {
        return Err(Error::InvalidOption {
            option: "threads",
            expected: "at least 1",
            got: 0.0,
        });
    }
    let workers = workers();
    let choice = Choice::new(Some(threads))?;
    let mut started = workers.lock();
    let global = match workers.forked || started.is_some() {
        true => Global::Unusable,
        false => start_global(choice.wanted()),
    };
    let pool = match global {
        Global::Started => Pool::Global,
        Global::Theirs | Global::Unusable => {
            own(choice.wanted()).map_err(|error| refusal(&choice, &error.to_string()))?
        }
        Global::Refused(reason) => return Err(refusal(&choice, &reason)),
    };
    workers.set.store(threads, Ordering::Relaxed);
    let old = started.replace(Started {
        choice: choice.clone(),
        pool,
    });
    // The old pool is dropped without the lock, because the drop waits for its threads.
    drop(started);
    drop(old);
    say(&choice);
    Ok(choice)
}

/// Runs work on every item, each perhaps on its own thread.
pub(crate) fn each<I: Send>(
    items: impl ExactSizeIterator<Item = I> + Send,
    work: impl Fn(I) + Sync,
) {
    if items.len() <= 1 {
        return items.for_each(work);
    }
    let work = &work;
    match pool() {
        Pool::Global => spread(items, work),
        Pool::Own(pool) => pool.install(|| spread(items, work)),
        Pool::Caller => items.for_each(work),
    }
}

/// Runs `work(part, elements)` on so many parts of `len` elements, each perhaps on its own thread. The last part may be shorter. In
/// contrast to [`each`] this allocates nothing.
pub(crate) fn each_part<T: Send>(
    data: &mut [T],
    [parts, len]: [usize; 2],
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let all = Parts::of(data, parts, len);
    if parts <= 1 {
        return all.each(&work);
    }
    match pool() {
        Pool::Global => all.spread(&work),
        Pool::Own(pool) => pool.install(|| all.spread(&work)),
        Pool::Caller => all.each(&work),
    }
}

/// Runs work on a thread of the pool.
pub(super) fn within<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Pool::Global => rayon::scope(|_| work()),
        Pool::Own(pool) => pool.install(work),
        Pool::Caller => work(),
    }
}

/// The pool that takes work of the calling thread.
fn pool() -> Pool {
    match rayon::current_thread_index() {
        // The current pool is the one whose thread runs this, else the global one.
        Some(_) => Pool::Global,
        None => workers().started().pool,
    }
}

fn spread<I: Send>(mut items: impl Iterator<Item = I> + Send, work: impl Fn(I) + Sync) {
    let work = &work;
    rayon::scope(move |scope| {
        let first = items.next();
        for item in items {
            scope.spawn(move |_| work(item));
        }
        first.into_iter().for_each(work);
    });
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, Option<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The choice to start. In a forked process that is the calling thread alone, until [`set`] asks for more: a thread
    /// that Rust starts there may wait forever for a lock of the standard library that a thread of the parent held.
    fn wanted(&self) -> Result<Choice, Error> {
        if self.forked {
            return Ok(Choice::of_caller());
        }
        let set = self.set.load(Ordering::Relaxed);
        Choice::new((set > 0).then_some(set))
    }

    /// The threads. Starts them if they were not started.
    fn started(&self) -> Started {
        let mut started = self.lock();
        if let Some(started) = &*started {
            return started.clone();
        }
        let new = self.begin();
        *started = Some(new.clone());
        // A logger may run operators, or wait for a thread that does.
        drop(started);
        say(&new.choice);
        new
    }

    /// Starts as many threads as are wanted, or as many as the system allows.
    fn begin(&self) -> Started {
        // Operators report a wrong environment before they come here.
        let choice = self.wanted().unwrap_or_else(|_| Choice::of_caller());
        let global = match self.forked {
            true => Global::Unusable,
            false => start_global(choice.wanted()),
        };
        let refused = match global {
            Global::Started => {
                let pool = Pool::Global;
                return Started { choice, pool };
            }
            Global::Theirs => {
                let choice = Choice::of_global_pool(rayon::current_num_threads());
                let pool = Pool::Global;
                return Started { choice, pool };
            }
            Global::Unusable if choice.wanted() == 1 => {
                let pool = Pool::Caller;
                return Started { choice, pool };
            }
            Global::Unusable => match own(choice.wanted()) {
                Ok(pool) => return Started { choice, pool },
                Err(error) => error.to_string(),
            },
            Global::Refused(reason) => reason,
        };
        let mut fewer = choice.wanted() / 2;
        while fewer > 1 {
            if let Ok(pool) = own(fewer) {
                let choice = choice.reduced(fewer, refused);
                return Started { choice, pool };
            }
            fewer /= 2;
        }
        let choice = choice.reduced(1, refused);
        let pool = Pool::Caller;
        Started { choice, pool }
    }
}

/// The state of rayon's global pool after an attempt to start it.
enum Global {
    Started,
    /// Other code has started it.
    Theirs,
    /// The pool is the parent's, or could not be started before: rayon tries only once.
    Unusable,
    /// The system refused the threads.
    Refused(String),
}

/// Tries to start rayon's global pool, which this process has not started.
fn start_global(threads: usize) -> Global {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if REFUSED.load(Ordering::Relaxed) {
        return Global::Unusable;
    }
    match builder(threads).build_global() {
        Ok(()) => Global::Started,
        // Only errors of the system have a source.
        Err(error) if error.source().is_some() => {
            REFUSED.store(true, Ordering::Relaxed);
            Global::Refused(error.to_string())
        }
        Err(_) => Global::Theirs,
    }
}

fn own(threads: usize) -> Result<Pool, ThreadPoolBuildError> {
    let pool = builder(threads).build()?;
    Ok(Pool::Own(Arc::new(pool)))
}

fn builder(threads: usize) -> ThreadPoolBuilder {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("flashcliff-{index}"))
}

fn refusal(choice: &Choice, reason: &str) -> Error {
    Error::Threads {
        threads: choice.wanted(),
        reason: reason.to_owned(),
    }
}

/// Logs why there are fewer threads than were asked for, if there are.
fn say(choice: &Choice) {
    if let Some(note) = choice.note() {
        log::warn!("{note}");
    }
}
