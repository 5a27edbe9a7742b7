//! The marks of a recording, which belong to the thread that records.

use std::cell::RefCell;
use std::sync::Arc;

use candle_core::Device;

use super::clock::{Clock, Moment, Time};
use super::windows::Marks as Made;
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

/// Marks in a row whose operations are known from another recording.
#[derive(Debug)]
struct Part {
    /// The marks that have a moment.
    made: Made,
    /// The marks until now.
    count: usize,
    /// The first mark of all, the marks of the window, the last mark of all.
    moments: Vec<Moment>,
}

#[derive(Debug)]
enum Marks {
    All(Vec<Mark>),
    Part(Part),
}

#[derive(Debug)]
struct Recorder {
    clock: Clock,
    marks: Marks,
    /// The first error of the clock. Marks are made where no error can be returned.
    failure: Option<Error>,
}

impl Recorder {
    fn mark(&mut self, operation: Option<Arc<Operation>>, begins: bool) {
        let taken = match (&mut self.marks, operation) {
            (Marks::All(marks), Some(operation)) => self.clock.now().map(|moment| {
                marks.push(Mark {
                    moment,
                    operation,
                    begins,
                });
            }),
            (Marks::Part(part), _) => part.mark(&self.clock),
            (Marks::All(_), None) => Ok(()),
        };
        if let Err(error) = taken {
            self.failure.get_or_insert(error);
        }
    }
}

impl Part {
    /// The moments of the whole besides those of the window: the first and the last mark.
    const ENDS: usize = 2;

    fn mark(&mut self, clock: &Clock) -> Result<(), Error> {
        let place = self.count;
        self.count += 1;
        if place == 0 {
            self.moments.push(clock.now()?);
        }
        if self.made.contain(place) {
            self.moments.push(clock.now()?);
        }
        Ok(())
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
        note(operation, true);
    }
}

/// Runs work as an operation. Behind it what ran before goes on.
pub(crate) fn within<R>(operation: impl FnOnce() -> Arc<Operation>, work: impl FnOnce() -> R) -> R {
    around(|| {
        begin(operation);
        work()
    })
}

/// Runs work that notes its operations itself. Behind it what ran before goes on.
pub(crate) fn around<R>(work: impl FnOnce() -> R) -> R {
    if !is_recording() {
        return work();
    }
    let outer = RECORDER.with_borrow(|recorder| {
        let recorder = recorder.as_ref()?;
        match &recorder.marks {
            Marks::All(marks) => marks.last().map(|mark| mark.operation.clone()),
            Marks::Part(_) => None,
        }
    });
    let done = work();
    note(|| outer.unwrap_or_else(Operation::rest), false);
    done
}

/// Marks the moment. The operation is made only if the recording has a place for it.
fn note(operation: impl FnOnce() -> Arc<Operation>, begins: bool) {
    let has_operations = RECORDER.with_borrow(|recorder| {
        let marks = recorder.as_ref().map(|recorder| &recorder.marks);
        matches!(marks, Some(Marks::All(_)))
    });
    let operation = has_operations.then(operation);
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
    /// # Errors
    /// The errors of CUDA.
    pub(super) fn start(device: &Device) -> Result<Self, Error> {
        let marks = Marks::All(Vec::with_capacity(256));
        Self::with(Clock::new(device, 0)?, marks)
    }

    /// Starts a recording of some marks only. Marks count from 0, the beginning.
    ///
    /// # Errors
    /// The errors of CUDA.
    pub(super) fn of_part(device: &Device, made: Made) -> Result<Self, Error> {
        let moments = made.range.len().div_ceil(made.apart) + 1 + Part::ENDS;
        let part = Part {
            made,
            count: 0,
            moments: Vec::with_capacity(moments),
        };
        Self::with(Clock::new(device, moments)?, Marks::Part(part))
    }

    fn with(clock: Clock, marks: Marks) -> Result<Self, Error> {
        let mut recorder = Recorder {
            clock,
            marks,
            failure: None,
        };
        recorder.mark(Some(Operation::rest()), true);
        let outer = RECORDER.replace(Some(recorder));
        Ok(Self { outer })
    }

    /// The recorder, behind the last mark.
    ///
    /// # Errors
    /// The errors of CUDA, also those of marks.
    fn end(mut self) -> Result<Option<Recorder>, Error> {
        let own = RECORDER.replace(self.outer.take());
        std::mem::forget(self);
        let Some(mut recorder) = own else {
            return Ok(None);
        };
        match &mut recorder.marks {
            Marks::All(_) => recorder.mark(Some(Operation::rest()), false),
            Marks::Part(part) => {
                part.moments.push(recorder.clock.now()?);
            }
        }
        match recorder.failure.take() {
            Some(error) => Err(error),
            None => Ok(Some(recorder)),
        }
    }

    /// # Errors
    /// The errors of CUDA, also those of marks.
    pub(super) fn finish(self) -> Result<Timeline, Error> {
        match self.end()? {
            Some(recorder) => recorder.timeline(),
            None => Ok(Timeline { slices: Vec::new() }),
        }
    }

    /// The times of a recording of some marks.
    ///
    /// # Errors
    /// The errors of CUDA, also those of marks.
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
        let marks = match self.marks {
            Marks::All(marks) => marks,
            Marks::Part(_) => Vec::new(),
        };
        let moments: Vec<&Moment> = marks.iter().map(|mark| &mark.moment).collect();
        let times = self.clock.times(&moments)?;
        let pairs = times.windows(2).zip(&marks);
        let slices = pairs.map(|(pair, mark)| {
            let length = pair[1].since(pair[0]);
            Slice {
                operation: mark.operation.clone(),
                begins: mark.begins,
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

    /// The times of a window; none of a recording of all marks.
    fn sample(self) -> Result<Option<Sample>, Error> {
        let Marks::Part(part) = self.marks else {
            return Ok(None);
        };
        let moments: Vec<&Moment> = part.moments.iter().collect();
        let times = self.clock.times(&moments)?;
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Ok(None);
        };
        // The last mark of all may end the window.
        let end = times.len() - usize::from(!part.made.contain(part.count));
        let inner = &times[1..end];
        let lengths: Vec<Time> = inner
            .windows(2)
            .map(|pair| pair[1].since(pair[0]))
            .collect();
        Ok(Some(Sample {
            // The last mark has no number.
            marks: part.count + 1,
            whole: last.since(*first),
            slices: lengths,
        }))
    }
}
