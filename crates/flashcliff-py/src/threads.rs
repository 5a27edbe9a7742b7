//! The threads of the operators on the CPU.

use std::sync::{Arc, Once, PoisonError, RwLock, RwLockWriteGuard};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// Which threads to use.
struct Choice {
    /// A pool other than rayon's global one, which cannot be changed once it has started.
    pool: Option<Arc<ThreadPool>>,
    /// How many threads; 0 is one for each CPU.
    threads: usize,
    /// This process was forked: the threads of rayon's global pool are its parent's.
    forked: bool,
}

static CHOICE: RwLock<Choice> = RwLock::new(Choice {
    pool: None,
    threads: 0,
    forked: false,
});

/// Starts rayon's global pool.
static GLOBAL: Once = Once::new();

/// Runs work on the threads chosen.
pub(crate) fn install<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

fn pool() -> Option<Arc<ThreadPool>> {
    let choice = CHOICE.read().unwrap_or_else(PoisonError::into_inner);
    let (pool, threads, forked) = (choice.pool.clone(), choice.threads, choice.forked);
    drop(choice);
    if pool.is_none() && forked {
        // Without threads, work runs on those of rayon, and if it is large waits forever; a pool of one
        // thread can always be made where anything runs at all.
        let made = build(threads).or_else(|_| build(1)).ok().map(Arc::new);
        let mut choice = write();
        let pool = choice.pool.take().or(made);
        choice.pool.clone_from(&pool);
        return pool;
    }
    if pool.is_none() {
        start_global(threads);
    }
    pool
}

/// Starts rayon's global pool, unless it has started; says whether it did.
fn start_global(threads: usize) -> bool {
    let mut started = false;
    GLOBAL.call_once(|| {
        let built = ThreadPoolBuilder::new().num_threads(threads).build_global();
        started = built.is_ok();
    });
    started
}

fn build(threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new().num_threads(threads).build()
}

fn write() -> RwLockWriteGuard<'static, Choice> {
    CHOICE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The number of threads that operators on the CPU use.
#[pyfunction]
pub(crate) fn get_num_threads(py: Python<'_>) -> usize {
    py.detach(|| install(rayon::current_num_threads))
}

/// Makes operators on the CPU use a number of threads. Results do not depend on it. The default is
/// `RAYON_NUM_THREADS`, else `OMP_NUM_THREADS`, else the number of CPUs.
#[pyfunction]
pub(crate) fn set_num_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    if threads == 0 {
        return Err(PyValueError::new_err("threads must be at least 1, got 0"));
    }
    py.detach(|| {
        let forked = write().forked;
        let pool = match !forked && start_global(threads) {
            true => None,
            false => Some(Arc::new(build(threads)?)),
        };
        let mut choice = write();
        choice.threads = threads;
        // Dropped without the lock: it waits for the threads of the old pool.
        let old = std::mem::replace(&mut choice.pool, pool);
        drop(choice);
        drop(old);
        Ok(())
    })
    .map_err(|error: ThreadPoolBuildError| PyRuntimeError::new_err(error.to_string()))
}

/// How many threads to start with.
pub(crate) fn set_default() {
    let number = |name| std::env::var(name).ok()?.parse::<usize>().ok();
    let threads = number("RAYON_NUM_THREADS").or_else(|| number("OMP_NUM_THREADS"));
    write().threads = threads.unwrap_or(0);
}

/// Gives a forked process threads of its own at its next call: those of its parent are not there, and
/// work for them would wait forever.
#[pyfunction]
pub(crate) fn after_fork() {
    let mut choice = write();
    choice.forked = true;
    // The threads of the parent cannot be joined here.
    std::mem::forget(choice.pool.take());
}
