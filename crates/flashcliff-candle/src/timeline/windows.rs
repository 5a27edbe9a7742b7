//! Windows of marks, and the step that they make together.
//!
//! A *window* is some slices of a step in a row. A step carries the marks of one window. *Dense* windows are short,
//! with all their marks, and are a step together. *Sparse* windows are a step together too, with every fourth mark.
//! Both last longer than the step by what their marks take, at their places between the operations. So the difference
//! of both, divided by the marks that sparse windows leave out, is what a mark takes, and it is taken off each slice.
//! The mark at the end of a step belongs to steps without a profile as well, and stays.
//!
//! A machine is faster or slower for some time, so a sample counts by its relation to the steps without marks that ran
//! just before and after it: see [`Plain`]. Of the samples of a window the middle half counts.

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::clock::Time;
use super::recorder::Sample;

/// The marks of a sparse window are so many slices apart.
const APART: usize = 4;
/// The steps without marks before a sample, and as many after it, that it is compared with.
const NEAR: usize = 3;

/// Some slices in a row, with what steps said about them.
#[derive(Debug)]
pub(super) struct Window {
    marks: Marks,
    /// Samples, each with the number of steps without marks that ran before it.
    samples: Vec<(Sample, usize)>,
}

/// Which marks of a step are made.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    /// The mark at the beginning of a slice has its number, and its end is the next mark.
    pub(super) range: Range<usize>,
    /// Marks of the range are so far apart, but for the last one, which is made too.
    pub(super) apart: usize,
}

impl Marks {
    /// No mark.
    pub(super) fn none() -> Self {
        Self {
            range: 0..0,
            apart: 1,
        }
    }

    /// All marks but the first one of a step, which is always made.
    pub(super) fn all() -> Self {
        Self {
            range: 1..usize::MAX,
            apart: 1,
        }
    }

    /// Whether a mark is made.
    pub(super) fn contain(&self, place: usize) -> bool {
        let is_last = place + 1 == self.range.end;
        self.range.contains(&place)
            && ((place - self.range.start).is_multiple_of(self.apart) || is_last)
    }
}

impl Window {
    /// The windows of a round: dense ones of at most so many slices, and sparse ones.
    pub(super) fn of_step(slices: usize, of_window: usize) -> Vec<Self> {
        let of_window = of_window.max(1);
        let mut windows = Self::all(slices, of_window, 1);
        windows.extend(Self::all(slices, of_window.max(APART), APART));
        windows
    }

    /// Windows of about equal length that are a step together.
    fn all(slices: usize, most: usize, apart: usize) -> Vec<Self> {
        let count = slices.div_ceil(most).max(1);
        let edge = |window: usize| window * slices / count;
        (0..count)
            .map(|window| Self {
                marks: Marks {
                    range: edge(window)..edge(window + 1) + 1,
                    apart,
                },
                samples: Vec::new(),
            })
            .collect()
    }

    /// The marks of a sample.
    pub(super) fn marks(&self) -> Marks {
        self.marks.clone()
    }

    /// Takes a sample, after so many steps without marks.
    pub(super) fn add(&mut self, sample: Sample, behind: usize) {
        self.samples.push((sample, behind));
    }

    fn is_dense(&self) -> bool {
        self.marks.apart == 1
    }

    /// What the middle half of the samples says, beside steps without marks.
    fn mean(&self, plain: &Plain) -> Mean {
        let beside = |(sample, behind): &(Sample, usize)| {
            let near = plain.near(*behind, None);
            let lengths = sample.slices.iter();
            let lengths = lengths.map(|length| length.map(|seconds| seconds / near));
            (sample.whole.device / near, lengths.collect::<Vec<_>>())
        };
        let kept = middle_half(self.samples.iter().map(beside).collect(), |(whole, _)| {
            *whole
        });
        let of = |place: usize| kept.iter().map(move |(_, lengths)| lengths[place]);
        let count = kept.first().map_or(0, |(_, lengths)| lengths.len());
        Mean {
            lengths: (0..count).map(|place| mean_time(of(place))).collect(),
            whole: mean(&kept.iter().map(|(whole, _)| *whole).collect::<Vec<_>>()),
        }
    }
}

/// What a window says, in parts of a step without marks.
#[derive(Debug)]
struct Mean {
    /// From each mark that was made to the next one; none without samples.
    lengths: Vec<Time>,
    /// The whole step.
    whole: f64,
}

/// The seconds of steps without marks between their ends, in the order in which they ran.
#[derive(Debug, Default)]
pub(super) struct Plain(pub(super) Vec<f64>);

impl Plain {
    /// The mean of the steps around one that ran after so many of them, without one of their number; 1 if there are none.
    fn near(&self, behind: usize, but: Option<usize>) -> f64 {
        let range = behind.saturating_sub(NEAR)..(behind + NEAR).min(self.0.len());
        let near = range.filter(|at| Some(*at) != but).map(|at| self.0[at]);
        match &near.collect::<Vec<_>>()[..] {
            [] => 1.0,
            near => mean(near),
        }
    }

    /// The mean of the faster half: other work of the machine slows steps, and never makes one faster.
    fn seconds(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        mean(&sorted[..sorted.len().div_ceil(2)])
    }

    /// The seconds of what lasts as long as the steps around it: the mean of the faster half, divided by the mean ratio
    /// of a step to the steps near it.
    fn scale(&self) -> f64 {
        let steps = self.0.iter().enumerate();
        let beside = steps.map(|(at, seconds)| seconds / self.near(at, Some(at)));
        match &middle_half(beside.collect(), |part| *part)[..] {
            [] => 1.0,
            // A single step has none around it.
            _ if self.0.len() == 1 => self.0[0],
            parts => self.seconds() / mean(parts),
        }
    }
}

/// What windows say together.
#[derive(Debug)]
pub(super) struct Joined {
    /// The length of each slice of a step, without what marks take.
    pub(super) lengths: Vec<Time>,
    /// What a mark takes.
    pub(super) mark: Time,
    /// Mean seconds of a step with the marks of a window.
    pub(super) seconds: f64,
    /// Mean seconds of a step without marks.
    pub(super) plain_seconds: f64,
}

/// Puts the windows of a step together. Slices of a window without samples have no length.
pub(super) fn join(windows: &[Window], plain: &Plain) -> Joined {
    let scale = plain.scale();
    let scaled = |time: Time| time.map(|part| part * scale);
    let means: Vec<Mean> = windows.iter().map(|window| window.mean(plain)).collect();
    let mark = mark(windows, &means);
    let mut lengths = Vec::new();
    for (window, mean) in windows
        .iter()
        .zip(&means)
        .filter(|(window, _)| window.is_dense())
    {
        let slices = window.marks.range.len().saturating_sub(1);
        lengths.extend((0..slices).map(|place| match mean.lengths.get(place) {
            Some(length) => length.since(mark),
            None => Time::ZERO,
        }));
    }
    if let Some(last) = lengths.last_mut() {
        *last = last.plus(mark);
    }
    let sampled = means.iter().filter(|mean| !mean.lengths.is_empty());
    let wholes: Vec<f64> = sampled.map(|mean| mean.whole).collect();
    Joined {
        lengths: settled(lengths.into_iter().map(scaled)),
        mark: scaled(mark),
        seconds: mean(&wholes) * scale,
        plain_seconds: plain.seconds(),
    }
}

/// The time of a mark, as a part of a step: the difference of dense and sparse windows, for each mark that sparse
/// windows leave out. Zero as long as a window has no sample.
fn mark(windows: &[Window], means: &[Mean]) -> Time {
    if means.iter().any(|mean| mean.lengths.is_empty()) {
        return Time::ZERO;
    }
    let of = |is_dense: bool| {
        let own = windows.iter().zip(means);
        let own = own.filter(move |(window, _)| window.is_dense() == is_dense);
        own.flat_map(|(_, mean)| mean.lengths.iter().copied())
    };
    let sum = |is_dense| of(is_dense).fold(Time::ZERO, Time::plus);
    let left_out = of(true).count().saturating_sub(of(false).count()).max(1);
    let excess = sum(true).since(sum(false));
    excess.map(|part| (part / left_out as f64).max(0.0))
}

/// Lengths without negative ones: what a slice lacks is taken from the next ones, so that the sum stays. A mark does not take the same time
/// everywhere, and a slice in which little happens may be shorter than the mean of what marks take.
fn settled(lengths: impl Iterator<Item = Time>) -> Vec<Time> {
    let mut lacking = Time::ZERO;
    lengths
        .map(|length| {
            let rest = length.plus(lacking);
            lacking = rest.map(|seconds| seconds.min(0.0));
            rest.map(|seconds| seconds.max(0.0))
        })
        .collect()
}

/// The middle half of some values by their order, at least one of them.
fn middle_half<T>(mut values: Vec<T>, key: impl Fn(&T) -> f64) -> Vec<T> {
    values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let beyond = values.len() / 4;
    values.truncate(values.len() - beyond);
    values.split_off(beyond)
}

/// The mean; 0 of nothing.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn mean_time(times: impl Iterator<Item = Time>) -> Time {
    let (sum, count) = times.fold((Time::ZERO, 0), |(sum, count), time| {
        (sum.plus(time), count + 1)
    });
    sum.map(|seconds| seconds / f64::from(count.max(1)))
}
