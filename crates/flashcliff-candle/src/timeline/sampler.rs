//! A timeline that is put together from equal steps.
//!
//! A mark takes time: on a GPU the host records an event, and often the GPU waits for it. A step with all its marks may take a tenth longer than
//! one without. So each of many equal steps carries the marks of one *window*, some in a row, and the windows together are a step. One mark of a
//! window is made twice: the time between both is what a mark takes, and it is taken off each slice.

use std::ops::Range;
use std::sync::Arc;

use candle_core::Device;

use super::clock::Time;
use super::recorder::{Recording, Sample};
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
///     for _ in 0..sampler.windows() {
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
    windows: Vec<Range<usize>>,
    /// The samples of each window.
    samples: Vec<Vec<Sample>>,
    next: usize,
    /// The seconds of steps without marks between their ends.
    plain: Vec<f64>,
}

/// The result of a [`Sampler`]. Of all steps the faster half counts: other work of the machine slows steps, and never makes one faster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sampled {
    /// A step put together from all windows, without what marks take.
    pub timeline: Timeline,
    /// Mean seconds of a step that carried the marks of a window.
    pub seconds: f64,
    /// Mean seconds of a step that carried none.
    pub plain_seconds: f64,
}

impl Sampler {
    /// A sampler for steps like the one of a timeline, each with the marks of about so many slices, at least one.
    pub fn new(device: &Device, of: &Timeline, slices: usize) -> Self {
        let layout: Vec<(Arc<Operation>, bool)> = of
            .slices()
            .iter()
            .map(|slice| (slice.operation.clone(), slice.begins))
            .collect();
        let count = layout.len().div_ceil(slices.max(1)).max(1);
        // Windows of about equal length.
        let edge = |window: usize| window * layout.len() / count;
        let windows: Vec<Range<usize>> = (0..count).map(|w| edge(w)..edge(w + 1)).collect();
        Self {
            device: device.clone(),
            samples: windows.iter().map(|_| Vec::new()).collect(),
            layout,
            windows,
            next: 0,
            plain: Vec::new(),
        }
    }

    /// The number of windows.
    pub fn windows(&self) -> usize {
        self.windows.len()
    }

    /// Runs a step, and records the marks of the next window.
    ///
    /// # Errors
    /// The errors of CUDA; [`Error::OtherStep`] if the step has another number of marks than the one of the timeline.
    pub fn sample<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, Error> {
        let window = self.windows[self.next].clone();
        // The end of the last slice is the next mark.
        let (done, sample) = self.part(window.start..window.end + 1, work)?;
        self.samples[self.next].push(sample);
        self.next = (self.next + 1) % self.windows.len();
        Ok(done)
    }

    /// Runs a step without marks between its ends.
    ///
    /// # Errors
    /// The errors of [`Self::sample`].
    pub fn plain<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, Error> {
        let (done, sample) = self.part(0..0, work)?;
        self.plain.push(sample.whole.device);
        Ok(done)
    }

    fn part<R>(
        &self,
        window: Range<usize>,
        work: impl FnOnce() -> R,
    ) -> Result<(R, Sample), Error> {
        let recording = Recording::of_part(&self.device, window)?;
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
        let kept: Vec<Vec<Sample>> = self.samples.into_iter().map(faster_half).collect();
        let marks = kept.iter().flatten().filter_map(|sample| sample.mark);
        let mark = mean_time(&marks.collect::<Vec<_>>());
        let wholes = kept.iter().flatten().map(|sample| sample.whole.device);
        let seconds = mean(&wholes.collect::<Vec<_>>());
        let lengths = self
            .windows
            .iter()
            .zip(&kept)
            .flat_map(|(window, samples)| {
                (0..window.len()).map(|place| {
                    let own = samples.iter().map(|sample| sample.slices[place]);
                    mean_time(&own.collect::<Vec<_>>()).since(mark)
                })
            });
        let mut now = Time::ZERO;
        let mut slices = Vec::with_capacity(self.layout.len());
        for ((operation, begins), length) in self.layout.into_iter().zip(lengths) {
            let length = Time {
                device: length.device.max(0.0),
                host: length.host.max(0.0),
            };
            slices.push(Slice {
                operation,
                begins,
                start: now.device,
                seconds: length.device,
                host_start: now.host,
                host_seconds: length.host,
            });
            now = Time {
                device: now.device + length.device,
                host: now.host + length.host,
            };
        }
        let mut plain = self.plain;
        plain.sort_by(f64::total_cmp);
        plain.truncate(plain.len().div_ceil(2));
        Sampled {
            timeline: Timeline { slices },
            seconds,
            plain_seconds: mean(&plain),
        }
    }
}

fn faster_half(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.sort_by(|a, b| a.whole.device.total_cmp(&b.whole.device));
    samples.truncate(samples.len().div_ceil(2));
    samples
}

/// The mean; 0 of nothing.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn mean_time(times: &[Time]) -> Time {
    let of = |part: fn(&Time) -> f64| mean(&times.iter().map(part).collect::<Vec<_>>());
    Time {
        device: of(|time| time.device),
        host: of(|time| time.host),
    }
}
