//! The marks of a recording, which belong to the thread that records.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::Device;

use super::clock::{Clock, Moment, Time};
use super::windows::Marks;
use super::{Operation, Slice, Timeline};
use crate::Error;

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// The marks of a recording until now.
#[derive(Debug)]
struct Recorder {
    clock: Clock,
    /// The marks that have a moment, besides the first and the last one of all.
    made: Marks,
    /// The marks until now.
    count: usize,
    /// The moment of the first mark of all, of the marks that are made, and of the last one of all.
    moments: Vec<Moment>,
    /// The operation that runs from each mark on, and whether it begins there; `None` if another recording has said it.
    operations: Option<Vec<(Arc<Operation>, bool)>>,
    /// The first error of the clock. Marks are made where no error can be returned.
    failure: Option<Error>,
}

impl Recorder {
    fn mark(&mut self) {
        let place = self.count;
        self.count += 1;
        for _ in 0..usize::from(place == 0) + usize::from(self.made.contain(place)) {
            match self.clock.now() {
                Ok(moment) => self.moments.push(moment),
                Err(error) => drop(self.failure.get_or_insert(error)),
            }
        }
    }
}

/// Whether the calling thread records.
pub(crate) fn is_recording() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// Notes that an operation begins, which runs until another one does, or until the end of [`within`]. The operation
/// is made before the moment is taken.
pub(crate) fn begin(operation: impl FnOnce() -> Arc<Operation>) {
    if is_recording() {
        note(operation, true);
    }
}

/// Runs work as an operation. After it, what ran before goes on.
pub(crate) fn within<R>(operation: impl FnOnce() -> Arc<Operation>, work: impl FnOnce() -> R) -> R {
    around(|| {
        begin(operation);
        work()
    })
}

/// Runs work that notes its operations itself. After it, what ran before goes on.
pub(crate) fn around<R>(work: impl FnOnce() -> R) -> R {
    if !is_recording() {
        return work();
    }
    let outer = RECORDER.with_borrow(|recorder| {
        let (operation, _) = recorder.as_ref()?.operations.as_ref()?.last()?;
        Some(operation.clone())
    });
    let done = work();
    note(|| outer.unwrap_or_else(Operation::rest), false);
    done
}

/// Marks the moment. The operation is made only if the recording has a place for it.
fn note(operation: impl FnOnce() -> Arc<Operation>, begins: bool) {
    let has_operations = RECORDER.with_borrow(|recorder| {
        let own = recorder.as_ref();
        own.is_some_and(|own| own.operations.is_some())
    });
    let operation = has_operations.then(operation);
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            if let (Some(operation), Some(all)) = (operation, &mut recorder.operations) {
                all.push((operation, begins));
            }
            recorder.mark();
        }
    });
}

/// The moments of the whole besides the moments of the window: the first and the last mark.
const ENDS: usize = 2;

/// A recording that lasts until it is finished or dropped.
#[derive(Debug)]
pub(super) struct Recording {
    /// The recording that this one interrupts.
    outer: Option<Recorder>,
}

/// The times of a window of marks.
#[derive(Debug)]
pub(super) struct Sample {
    /// The number of all marks.
    pub(super) marks: usize,
    /// From the first mark to the last one.
    pub(super) whole: Time,
    /// From each mark that was made to the next one, but for the ends of the step.
    pub(super) slices: Vec<Time>,
}

impl Recording {
    /// Starts a recording of all marks.
    ///
    /// # Errors
    /// The errors of CUDA.
    pub(super) fn start(device: &Device) -> Result<Self, Error> {
        let mut operations = Vec::with_capacity(256);
        operations.push((Operation::rest(), true));
        Self::with(Clock::new(device, 0)?, Marks::all(), Some(operations))
    }

    /// Starts a recording of some marks only, whose operations are known. Marks count from 0, the beginning.
    ///
    /// # Errors
    /// The errors of CUDA.
    pub(super) fn of_part(device: &Device, made: Marks) -> Result<Self, Error> {
        let moments = made.range.len().div_ceil(made.apart) + 1 + ENDS;
        Self::with(Clock::new(device, moments)?, made, None)
    }

    fn with(
        clock: Clock,
        made: Marks,
        operations: Option<Vec<(Arc<Operation>, bool)>>,
    ) -> Result<Self, Error> {
        let mut recorder = Recorder {
            clock,
            made,
            count: 0,
            moments: Vec::with_capacity(256),
            operations,
            failure: None,
        };
        recorder.mark();
        let outer = RECORDER.replace(Some(recorder));
        Ok(Self { outer })
    }

    /// The recorder, after the last mark.
    ///
    /// # Errors
    /// The errors of CUDA, including the errors of marks.
    fn end(mut self) -> Result<Option<Recorder>, Error> {
        let own = RECORDER.replace(self.outer.take());
        std::mem::forget(self);
        let Some(mut recorder) = own else {
            return Ok(None);
        };
        recorder.moments.push(recorder.clock.now()?);
        match recorder.failure.take() {
            Some(error) => Err(error),
            None => Ok(Some(recorder)),
        }
    }

    /// # Errors
    /// The errors of CUDA, including the errors of marks.
    pub(super) fn finish(self) -> Result<Timeline, Error> {
        match self.end()? {
            Some(recorder) => recorder.timeline(),
            None => Ok(Timeline { slices: Vec::new() }),
        }
    }

    /// The times of a recording of some marks.
    ///
    /// # Errors
    /// The errors of CUDA, including the errors of marks.
    pub(super) fn finish_part(self) -> Result<Option<Sample>, Error> {
        match self.end()? {
            Some(recorder) => recorder.sample(),
            None => Ok(None),
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
        let moments: Vec<&Moment> = self.moments.iter().collect();
        let times = self.clock.times(&moments)?;
        let pairs = times.windows(2).zip(self.operations.unwrap_or_default());
        let slices = pairs.map(|(pair, (operation, begins))| {
            let length = pair[1].since(pair[0]);
            Slice {
                operation,
                begins,
                start: pair[0].device,
                seconds: length.device,
                host_start: pair[0].host,
                host_seconds: length.host,
            }
        });
        Ok(Timeline {
            slices: slices.collect(),
        })
    }

    /// The times of a window.
    fn sample(self) -> Result<Option<Sample>, Error> {
        let moments: Vec<&Moment> = self.moments.iter().collect();
        let times = self.clock.times(&moments)?;
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Ok(None);
        };
        // The last mark of all may end the window.
        let end = times.len() - usize::from(!self.made.contain(self.count));
        let inner = &times[1..end];
        let lengths: Vec<Time> = inner
            .windows(2)
            .map(|pair| pair[1].since(pair[0]))
            .collect();
        Ok(Some(Sample {
            // The last mark has no number.
            marks: self.count + 1,
            whole: last.since(*first),
            slices: lengths,
        }))
    }
}
