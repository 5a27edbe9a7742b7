//! The number of threads, and what decided it.

use std::fmt;

use crate::Error;
use crate::environment::environment;

/// The largest number of threads for each CPU. More threads would only wait for each other.
const THREADS_PER_CPU: usize = 8;

/// The source of the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A call of [`set`](super::set).
    Set,
    /// The Rust program, which had started rayon's global pool.
    GlobalPool,
    /// An environment variable.
    Variable(&'static str),
    /// The number of CPUs that the process may use.
    Cpus,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set => f.write_str("the program"),
            Self::GlobalPool => f.write_str("rayon's global pool"),
            Self::Variable(name) => f.write_str(name),
            Self::Cpus => f.write_str("the number of CPUs"),
        }
    }
}

/// The number of threads that operators use, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    asked: usize,
    count: usize,
    source: Source,
    refused: Option<String>,
}

impl Choice {
    /// Takes the number that the program set, else the number from the environment, else one thread for each CPU.
    pub(super) fn new(set: Option<usize>) -> Result<Self, Error> {
        let environment = environment()?;
        let (asked, source) = match (set, environment.threads) {
            (Some(threads), _) => (threads, Source::Set),
            (None, Some((threads, variable))) => (threads, Source::Variable(variable)),
            (None, None) => (cpus(), Source::Cpus),
        };
        Ok(Self {
            asked,
            count: asked.min(limit()),
            source,
            refused: None,
        })
    }

    /// The threads of rayon's global pool, which other code has started.
    pub(super) fn of_global_pool(threads: usize) -> Self {
        Self {
            asked: threads,
            count: threads,
            source: Source::GlobalPool,
            refused: None,
        }
    }

    /// No thread but the calling one.
    pub(super) fn of_caller() -> Self {
        Self {
            asked: 1,
            count: 1,
            source: Source::Set,
            refused: None,
        }
    }

    /// A choice of fewer threads, because the system refused more.
    pub(super) fn reduced(&self, count: usize, reason: String) -> Self {
        Self {
            count,
            refused: Some(reason),
            ..self.clone()
        }
    }

    /// The number of threads to start: the number asked for, at most [`limit`].
    pub(super) fn wanted(&self) -> usize {
        self.asked.min(limit())
    }

    /// The reason of the system for refusing threads, if it did.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number that was asked for.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// The source of this number.
    pub fn source(&self) -> Source {
        self.source
    }

    /// A sentence that says why there are fewer threads than were asked for, to be shown once. `None` if there are as
    /// many.
    pub fn note(&self) -> Option<String> {
        let Self {
            asked,
            count,
            source,
            refused,
        } = self;
        if let Some(reason) = refused {
            let used = match count {
                1 => "the calling thread alone".to_owned(),
                count => format!("{count}"),
            };
            return Some(format!(
                "{asked} threads asked for by {source}, used: {used}, since the system starts no more ({reason})"
            ));
        }
        (count < asked).then(|| {
            format!(
                "{asked} threads asked for by {source}, {count} used: at most {THREADS_PER_CPU} for each CPU"
            )
        })
    }
}

/// The largest number of threads that operators use: eight for each CPU that the process may use.
pub fn limit() -> usize {
    cpus().saturating_mul(THREADS_PER_CPU)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
