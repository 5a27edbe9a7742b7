//! Windows of marks, and the step that they make together.
//!
//! A *window* is some slices of a step in a row. Some steps carry all marks of a window, its *dense* samples; others carry every fourth one, its
//! *sparse* samples. A window lasts longer with all marks, by what the marks take that the other steps left out, at their places between the
//! operations. So the samples themselves say what a mark takes, and it is taken off each slice. The marks at the end of a step belong to steps
//! without a profile as well, and stay.

use std::ops::Range;

use super::clock::Time;
use super::recorder::Sample;

/// The marks of a sparse sample are so many slices apart.
const APART: usize = 4;
/// The fewest slices of a window, if the step has as many. With one only no mark could be left out.
const LEAST: usize = 2;

/// Some slices in a row, with what steps said about them.
#[derive(Debug)]
pub(super) struct Window {
    /// The slices. The mark at the beginning of a slice has its number, and the end of the last one is the next mark.
    slices: Range<usize>,
    dense: Vec<Sample>,
    sparse: Vec<Sample>,
}

/// Which marks of a step are made.
#[derive(Clone, Debug)]
pub(super) struct Marks {
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

    /// Whether a mark is made.
    pub(super) fn contain(&self, place: usize) -> bool {
        let is_last = place + 1 == self.range.end;
        self.range.contains(&place)
            && ((place - self.range.start).is_multiple_of(self.apart) || is_last)
    }
}

impl Window {
    /// Windows of about equal length, of about so many slices, that are a step together.
    pub(super) fn of_step(slices: usize, of_window: usize) -> Vec<Self> {
        let count = slices.div_ceil(of_window.max(LEAST));
        let count = count.min(slices / LEAST).max(1);
        let edge = |window: usize| window * slices / count;
        let ranges = (0..count).map(|window| edge(window)..edge(window + 1));
        ranges
            .map(|slices| Self {
                slices,
                dense: Vec::new(),
                sparse: Vec::new(),
            })
            .collect()
    }

    /// The marks of the next sample.
    pub(super) fn marks(&self) -> Marks {
        Marks {
            range: self.slices.start..self.slices.end + 1,
            apart: if self.is_dense_next() { 1 } else { APART },
        }
    }

    /// Takes a sample with the marks that were asked for.
    pub(super) fn add(&mut self, sample: Sample) {
        match self.is_dense_next() {
            true => self.dense.push(sample),
            false => self.sparse.push(sample),
        }
    }

    fn is_dense_next(&self) -> bool {
        self.dense.len() <= self.sparse.len()
    }

    /// The fastest quarter of the samples of each kind.
    fn fastest(self) -> Self {
        Self {
            dense: fastest_quarter(self.dense, |sample| sample.whole.device),
            sparse: fastest_quarter(self.sparse, |sample| sample.whole.device),
            ..self
        }
    }

    /// The mean lengths of the slices, without a mark each; zero without samples.
    fn lengths(&self, mark: Time) -> Vec<Time> {
        let of = |place: usize| self.dense.iter().map(move |sample| sample.slices[place]);
        let without_mark = |place: usize| match self.dense.is_empty() {
            true => Time::ZERO,
            false => mean_time(of(place)).since(mark),
        };
        (0..self.slices.len()).map(without_mark).collect()
    }

    /// How much longer the window lasts with all marks, and the number of marks that sparse samples leave out; none before there are both kinds.
    fn excess(&self) -> Option<(Time, usize)> {
        let whole = |samples: &[Sample]| {
            let sums = samples.iter().map(|sample| {
                let slices = sample.slices.iter();
                slices.fold(Time::ZERO, |sum, slice| sum.plus(*slice))
            });
            mean_time(sums)
        };
        let (dense, sparse) = (self.dense.first()?, self.sparse.first()?);
        let left_out = dense.slices.len() - sparse.slices.len();
        let excess = whole(&self.dense).since(whole(&self.sparse));
        Some((excess, left_out))
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
}

/// Puts the windows of a step together, from the fastest quarter of the samples of each kind. Slices of a window without samples have no length.
pub(super) fn join(windows: Vec<Window>) -> Joined {
    let windows: Vec<Window> = windows.into_iter().map(Window::fastest).collect();
    let mark = mark(&windows);
    let wholes = windows
        .iter()
        .flat_map(|window| window.dense.iter().chain(&window.sparse));
    let wholes: Vec<f64> = wholes.map(|sample| sample.whole.device).collect();
    let lengths = windows.iter().flat_map(|window| window.lengths(mark));
    let mut lengths: Vec<Time> = lengths.collect();
    if let Some(last) = lengths.last_mut() {
        *last = last.plus(mark);
    }
    Joined {
        lengths: settled(lengths),
        mark,
        seconds: mean(&wholes),
    }
}

/// What a mark takes: how much longer windows last with all their marks, for each mark that sparse samples leave out.
fn mark(windows: &[Window]) -> Time {
    let (mut excess, mut left_out) = (Time::ZERO, 0);
    for (own, marks) in windows.iter().filter_map(Window::excess) {
        excess = excess.plus(own);
        left_out += marks;
    }
    let of_one = |seconds: f64| (seconds / left_out.max(1) as f64).max(0.0);
    excess.map(of_one)
}

/// Lengths without negative ones: what a slice lacks is taken from the next ones, so that the sum stays. A mark does not take the same time
/// everywhere, and a slice in which little happens may be shorter than the mean of what marks take.
fn settled(lengths: Vec<Time>) -> Vec<Time> {
    let mut lacking = Time::ZERO;
    lengths
        .into_iter()
        .map(|length| {
            let rest = length.plus(lacking);
            lacking = rest.map(|seconds| seconds.min(0.0));
            rest.map(|seconds| seconds.max(0.0))
        })
        .collect()
}

/// The smallest quarter of some values; at least one.
pub(super) fn fastest_quarter<T>(mut values: Vec<T>, seconds: impl Fn(&T) -> f64) -> Vec<T> {
    values.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    values.truncate(values.len().div_ceil(4));
    values
}

/// The mean; 0 of nothing.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn mean_time(times: impl Iterator<Item = Time>) -> Time {
    let (sum, count) = times.fold((Time::ZERO, 0), |(sum, count), time| {
        (sum.plus(time), count + 1)
    });
    sum.map(|seconds| seconds / f64::from(count.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of known slices. A mark takes time, and its moment is at its end.
    struct Simulated {
        slices: Vec<f64>,
        /// What the mark before each slice takes.
        marks: Vec<f64>,
        noise: f64,
        seed: u64,
    }

    impl Simulated {
        fn new(mark: impl Fn(usize) -> f64, noise: f64) -> Self {
            let slices: Vec<f64> = (0..83)
                .map(|slice| [2e-6, 9e-6, 0.4e-6, 30e-6, 5e-6][slice % 5])
                .collect();
            let marks = (0..=slices.len()).map(mark).collect();
            Self {
                slices,
                marks,
                noise,
                seed: 1,
            }
        }

        /// From 0 to 1.
        fn random(&mut self) -> f64 {
            self.seed = self
                .seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.seed >> 40) as f64 / (1_u64 << 24) as f64
        }

        /// A step with some marks, and those at its ends.
        fn step(&mut self, marks: &Marks) -> Sample {
            let count = self.slices.len();
            let slowness = 1.0 + self.noise * self.random();
            let (mut now, mut moments) = (0.0, Vec::new());
            for place in 0..=count {
                if marks.contain(place) {
                    moments.push(now + self.marks[place]);
                    now += self.marks[place];
                } else if place == count {
                    now += self.marks[place];
                }
                now += self.slices.get(place).map_or(0.0, |slice| slice * slowness);
            }
            let time = |seconds: f64| Time {
                device: seconds,
                host: seconds,
            };
            Sample {
                marks: count + 1,
                whole: time(now),
                slices: moments
                    .windows(2)
                    .map(|pair| time(pair[1] - pair[0]))
                    .collect(),
            }
        }

        /// Lengths, seconds with marks and without any but the last one.
        fn sampled(&mut self, of_window: usize, rounds: usize) -> (Joined, f64) {
            let mut windows = Window::of_step(self.slices.len(), of_window);
            let mut plain = Vec::new();
            for _ in 0..rounds {
                for at in 0..2 * windows.len() {
                    let at = at / 2;
                    let sample = self.step(&windows[at].marks());
                    windows[at].add(sample);
                    plain.push(self.step(&Marks::none()).whole.device);
                }
            }
            (
                join(windows),
                mean(&fastest_quarter(plain, |seconds| *seconds)),
            )
        }
    }

    fn sum(lengths: &[Time]) -> f64 {
        lengths.iter().map(|length| length.device).sum()
    }

    #[test]
    fn marks_that_take_as_long_as_slices_leave_no_trace() {
        for of_window in [1, 2, 3, 5, 20, 1000] {
            let mut simulated = Simulated::new(|_| 1.5e-6, 0.0);
            let (joined, plain) = simulated.sampled(of_window, 2);
            assert!(
                (joined.mark.device / 1.5e-6 - 1.0).abs() < 1e-9,
                "{joined:?}"
            );
            assert!((sum(&joined.lengths) / plain - 1.0).abs() < 1e-9);
            let last = simulated.slices.len() - 1;
            for (length, slice) in joined.lengths[..last].iter().zip(&simulated.slices) {
                assert!((length.device / slice - 1.0).abs() < 1e-6, "{of_window}");
            }
        }
    }

    /// Where the GPU waits for the host, a mark takes another time than elsewhere. Slices that are shorter than a mark do not make the step longer.
    #[test]
    fn rows_add_up_where_marks_take_different_times_on_a_noisy_machine() {
        for of_window in [2, 3, 7] {
            let unequal = |place: usize| if place < 30 { 0.6e-6 } else { 2.2e-6 };
            let mut simulated = Simulated::new(unequal, 0.3);
            let (joined, plain) = simulated.sampled(of_window, 20);
            let difference = sum(&joined.lengths) / plain - 1.0;
            assert!(difference.abs() < 0.02, "{of_window}: {difference}");
            assert!(joined.lengths.iter().all(|length| length.device >= 0.0));
            let cost = joined.seconds / plain - 1.0;
            assert!(cost < 0.02 * of_window as f64, "{of_window}: {cost}");
        }
    }

    /// The sum is not made to fit: operations that take longer with marks, not because of the marks, show in it.
    #[test]
    fn the_sum_is_not_scaled_to_steps_without_marks() {
        let mut simulated = Simulated::new(|_| 1e-6, 0.0);
        let (_, plain) = simulated.sampled(3, 2);
        simulated.slices.iter_mut().for_each(|slice| *slice *= 1.1);
        let (longer, _) = simulated.sampled(3, 2);
        let difference = sum(&longer.lengths) / plain - 1.0;
        assert!((0.09..0.11).contains(&difference), "{difference}");
    }

    #[test]
    fn windows_are_the_slices_of_a_step_once() {
        for slices in 1..40 {
            for of_window in 0..12 {
                let windows = Window::of_step(slices, of_window);
                let all: Vec<usize> = windows.iter().flat_map(|w| w.slices.clone()).collect();
                assert_eq!(all, (0..slices).collect::<Vec<_>>());
                let least = windows.iter().map(|window| window.slices.len()).min();
                assert!(least >= Some(LEAST.min(slices)), "{slices} {of_window}");
                let most = windows.iter().map(|window| window.slices.len()).max();
                assert!(
                    most <= Some(of_window.max(LEAST + 1)),
                    "{slices} {of_window}"
                );
            }
        }
    }

    #[test]
    fn slices_in_which_little_happens_keep_the_sum() {
        let of = |values: &[f64]| {
            values
                .iter()
                .map(|&v| Time {
                    device: v,
                    host: -v,
                })
                .collect()
        };
        let lengths = settled(of(&[1.0, -0.5, 2.0, -3.0, 1.0, 3.0]));
        let device: Vec<f64> = lengths.iter().map(|length| length.device).collect();
        assert_eq!(device, [1.0, 0.0, 1.5, 0.0, 0.0, 1.0]);
        assert!(lengths.iter().all(|length| length.host >= 0.0));
    }
}
