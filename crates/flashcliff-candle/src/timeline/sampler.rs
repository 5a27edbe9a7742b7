//! A timeline that is put together from equal steps.
//!
//! A mark takes time: on a GPU the host records an event, and often the GPU waits for it. A step with all its marks
//! may take a tenth longer than one without. So each of many equal steps carries the marks of one window, and the
//! windows together are a step: see `windows`.

use std::sync::Arc;

use candle_core::Device;

use super::clock::Time;
use super::recorder::{Recording, Sample};
use super::windows::{Joined, Marks, Plain, Window, join};
use super::{Operation, Slice, Timeline};
use crate::Error;

/// Records equal steps, window by window.
///
/// ```
/// use candle_core::Device;
/// use flashcliff_candle::timeline::{Sampler, record};
///
/// let work = || std::hint::black_box((0..1000).sum::<u64>());
/// let (_, timeline) = record(&Device::Cpu, work)?;
/// let mut sampler = Sampler::new(&Device::Cpu, &timeline, 4);
/// for _ in 0..10 {
///     sampler.plain(work)?;
///     for _ in 0..sampler.steps_of_a_round() {
///         sampler.sample(work)?;
///     }
/// }
/// let sampled = sampler.finish();
/// assert!(sampled.timeline.seconds() > 0.0 && sampled.plain_seconds > 0.0);
/// # Ok::<(), flashcliff_candle::Error>(())
/// ```
#[derive(Debug)]
pub struct Sampler {
    device: Device,
    /// The operations of a step, in the order of their slices, and whether they begin there.
    layout: Vec<(Arc<Operation>, bool)>,
    windows: Vec<Window>,
    /// The samples until now.
    count: usize,
    plain: Plain,
}

/// The result of a [`Sampler`]. Steps with marks count by their relation to the steps without marks that ran just
/// before and after them; of each window the middle half, and of steps without marks the faster half: other work of the
/// machine slows steps, and never makes one faster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sampled {
    /// A step put together from all windows, without what marks take.
    pub timeline: Timeline,
    /// Mean seconds of a step that carried the marks of a window.
    pub seconds: f64,
    /// Mean seconds of a step that carried none.
    pub plain_seconds: f64,
    /// Seconds that a mark takes.
    pub mark_seconds: f64,
}

impl Sampler {
    /// A sampler for steps like the one of a timeline, each with the marks of at most so many slices, or of four with marks left out.
    pub fn new(device: &Device, of: &Timeline, slices: usize) -> Self {
        let layout: Vec<(Arc<Operation>, bool)> = of
            .slices()
            .iter()
            .map(|slice| (slice.operation.clone(), slice.begins))
            .collect();
        Self {
            device: device.clone(),
            windows: Window::of_step(layout.len(), slices),
            layout,
            count: 0,
            plain: Plain::default(),
        }
    }

    /// The number of steps with marks that say each slice once, and what marks take.
    pub fn steps_of_a_round(&self) -> usize {
        self.windows.len()
    }

    /// Runs a step, and records the next marks.
    ///
    /// # Errors
    /// The errors of CUDA; [`Error::OtherStep`] if the step has another number of marks than the one of the timeline.
    pub fn sample<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, Error> {
        let next = self.count % self.windows.len();
        let (done, sample) = self.part(self.windows[next].marks(), work)?;
        self.windows[next].add(sample, self.plain.0.len());
        self.count += 1;
        Ok(done)
    }

    /// Runs a step without marks between its ends.
    ///
    /// # Errors
    /// The errors of [`Self::sample`].
    pub fn plain<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, Error> {
        let (done, sample) = self.part(Marks::none(), work)?;
        self.plain.0.push(sample.whole.device);
        Ok(done)
    }

    fn part<R>(&self, marks: Marks, work: impl FnOnce() -> R) -> Result<(R, Sample), Error> {
        let recording = Recording::of_part(&self.device, marks)?;
        let done = work();
        let sample = recording.finish_part()?;
        let (expected, got) = (
            self.layout.len() + 1,
            sample.as_ref().map_or(0, |s| s.marks),
        );
        match sample {
            Some(sample) if got == expected => Ok((done, sample)),
            _ => Err(Error::OtherStep { expected, got }),
        }
    }

    /// Puts the windows together. A window that was never sampled has slices of no length.
    pub fn finish(self) -> Sampled {
        let Joined {
            lengths,
            mark,
            seconds,
            plain_seconds,
        } = join(&self.windows, &self.plain);
        let mut now = Time::ZERO;
        let mut slices = Vec::with_capacity(self.layout.len());
        for ((operation, begins), length) in self.layout.into_iter().zip(lengths) {
            slices.push(Slice {
                operation,
                begins,
                start: now.device,
                seconds: length.device,
                host_start: now.host,
                host_seconds: length.host,
            });
            now = now.plus(length);
        }
        Sampled {
            timeline: Timeline { slices },
            seconds,
            plain_seconds,
            mark_seconds: mark.device,
        }
    }
}
