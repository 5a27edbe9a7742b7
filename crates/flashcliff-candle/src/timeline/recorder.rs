//! The marks of a recording, which belong to the thread that records.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::Device;

use super::clock::{Clock, Moment};
use super::{Operation, Slice, Timeline};
use crate::Error;

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// The operation that runs from a moment on.
#[derive(Debug)]
struct Mark {
    moment: Moment,
    operation: Arc<Operation>,
    begins: bool,
}

#[derive(Debug)]
struct Recorder {
    clock: Clock,
    marks: Vec<Mark>,
    /// The first error of the clock. Marks are made where no error can be returned.
    failure: Option<Error>,
}

impl Recorder {
    fn mark(&mut self, operation: Arc<Operation>, begins: bool) {
        match self.clock.now() {
            Ok(moment) => self.marks.push(Mark {
                moment,
                operation,
                begins,
            }),
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// Whether the calling thread records.
pub(crate) fn is_recording() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// Notes that an operation begins, which runs until another one does, or until the end of [`within`]. The operation is made before the moment
/// is taken.
pub(crate) fn begin(operation: impl FnOnce() -> Arc<Operation>) {
    if is_recording() {
        note(operation(), true);
    }
}

/// Runs work as an operation. Behind it what ran before goes on.
pub(crate) fn within<R>(operation: impl FnOnce() -> Arc<Operation>, work: impl FnOnce() -> R) -> R {
    if !is_recording() {
        return work();
    }
    let outer = RECORDER.with_borrow(|recorder| {
        let last = recorder.as_ref().and_then(|recorder| recorder.marks.last());
        last.map(|mark| mark.operation.clone())
    });
    note(operation(), true);
    let done = work();
    if let Some(outer) = outer {
        note(outer, false);
    }
    done
}

fn note(operation: Arc<Operation>, begins: bool) {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.mark(operation, begins);
        }
    });
}

/// A recording that lasts until it is finished or dropped.
#[derive(Debug)]
pub(super) struct Recording {
    /// The recording that this one interrupts.
    outer: Option<Recorder>,
}

impl Recording {
    /// # Errors
    /// The errors of CUDA.
    pub(super) fn start(device: &Device) -> Result<Self, Error> {
        let mut recorder = Recorder {
            clock: Clock::new(device)?,
            marks: Vec::with_capacity(256),
            failure: None,
        };
        recorder.mark(Operation::rest(), true);
        let outer = RECORDER.replace(Some(recorder));
        Ok(Self { outer })
    }

    /// # Errors
    /// The errors of CUDA, also those of marks.
    pub(super) fn finish(mut self) -> Result<Timeline, Error> {
        let own = RECORDER.replace(self.outer.take());
        std::mem::forget(self);
        match own {
            Some(mut recorder) => {
                recorder.mark(Operation::rest(), false);
                recorder.timeline()
            }
            None => Ok(Timeline { slices: Vec::new() }),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDER.set(self.outer.take());
    }
}

impl Recorder {
    /// The slices between marks.
    fn timeline(self) -> Result<Timeline, Error> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        let moments: Vec<&Moment> = self.marks.iter().map(|mark| &mark.moment).collect();
        let times = self.clock.times(&moments)?;
        let pairs = times.windows(2).zip(&self.marks);
        let slices = pairs.map(|(pair, mark)| Slice {
            operation: mark.operation.clone(),
            begins: mark.begins,
            start: pair[0].device,
            seconds: pair[1].device - pair[0].device,
            host_start: pair[0].host,
            host_seconds: pair[1].host - pair[0].host,
        });
        Ok(Timeline {
            slices: slices.collect(),
        })
    }
}
