//! Windows of marks, and the step that they make together.
//!
//! A *window* is some slices of a step in a row. A step carries the marks of one window. *Dense* windows are short, with all their marks, and are
//! a step together. *Sparse* windows are a step together too, with every fourth mark. Both last longer than the step by what their marks take, at
//! their places between the operations. So the difference of both, divided by the marks that sparse windows leave out, is what a mark takes, and
//! it is taken off each slice. The mark at the end of a step belongs to steps without a profile as well, and stays.
//!
//! A machine is faster or slower for some time, so a sample counts by its relation to the steps without marks that ran just before and behind it:
//! see [`Plain`]. Of the samples of a window the middle half counts.

use std::ops::Range;

use super::clock::Time;
use super::recorder::Sample;

/// The marks of a sparse window are so many slices apart.
const APART: usize = 4;
/// The steps without marks before a sample, and as many behind it, that it is compared with.
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

    /// Takes a sample, behind so many steps without marks.
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
    /// The mean of the steps around one that ran behind so many of them, without one of their number; 1 if there are none.
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

    /// The seconds of what lasts as long as the steps around it: those of the faster half, by what steps without marks are beside each other.
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

/// What a mark takes, in parts of a step: the difference of dense and sparse windows, for each mark that sparse ones leave out. Nothing as long as a
/// window has no sample.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SLICES: usize = 83;

    /// A step of known slices. A mark takes time, and its moment is at its end.
    struct Simulated {
        slices: Vec<f64>,
        /// What the mark before each slice takes.
        marks: Vec<f64>,
        /// How much slower the machine is at times, and how unequal slices are.
        drift: f64,
        noise: f64,
        slowness: f64,
        seed: u64,
    }

    impl Simulated {
        fn new(mark: impl Fn(usize) -> f64) -> Self {
            let lengths = [2e-6, 9e-6, 0.4e-6, 30e-6, 5e-6];
            Self {
                slices: (0..SLICES).map(|slice| lengths[slice % 5]).collect(),
                marks: (0..=SLICES).map(mark).collect(),
                drift: 0.0,
                noise: 0.0,
                slowness: 0.0,
                seed: 1,
            }
        }

        /// From 0 to 1.
        fn random(&mut self) -> f64 {
            let multiplied = self.seed.wrapping_mul(6364136223846793005);
            self.seed = multiplied.wrapping_add(1442695040888963407);
            (self.seed >> 40) as f64 / (1_u64 << 24) as f64
        }

        /// A step with some marks, and those at its ends.
        fn step(&mut self, marks: &Marks) -> Sample {
            // The machine is slower or faster for some dozens of steps.
            let push = self.random() - 0.5;
            self.slowness = (0.97 * self.slowness + self.drift * push).clamp(-0.5, 0.5);
            let (mut now, mut moments) = (0.0, Vec::new());
            for place in 0..=SLICES {
                if marks.contain(place) || place == SLICES {
                    now += self.marks[place];
                }
                if marks.contain(place) {
                    moments.push(now);
                }
                let noise = 1.0 + self.slowness + self.noise * self.random();
                now += self.slices.get(place).map_or(0.0, |slice| slice * noise);
            }
            let time = |seconds: f64| Time {
                device: seconds,
                host: seconds,
            };
            let lengths = moments.windows(2).map(|pair| time(pair[1] - pair[0]));
            Sample {
                marks: SLICES + 1,
                whole: time(now),
                slices: lengths.collect(),
            }
        }
    }

    /// Windows that were sampled some times, with a step without marks before every other sample; `slower` steps carry marks.
    fn sampled_apart(
        plain_steps: &mut Simulated,
        mut slower: Option<&mut Simulated>,
        of_window: usize,
        rounds: usize,
    ) -> Joined {
        let mut windows = Window::of_step(SLICES, of_window);
        let mut plain = Plain::default();
        for at in 0..rounds * windows.len() {
            if at % 2 == 0 {
                plain.0.push(plain_steps.step(&Marks::none()).whole.device);
            }
            let at = at % windows.len();
            let steps = slower.as_deref_mut().unwrap_or(plain_steps);
            let sample = steps.step(&windows[at].marks());
            windows[at].add(sample, plain.0.len());
        }
        join(&windows, &plain)
    }

    fn sampled(steps: &mut Simulated, of_window: usize, rounds: usize) -> Joined {
        sampled_apart(steps, None, of_window, rounds)
    }

    fn difference(joined: &Joined) -> f64 {
        let sum: f64 = joined.lengths.iter().map(|length| length.device).sum();
        sum / joined.plain_seconds - 1.0
    }

    #[test]
    fn marks_that_take_as_long_as_slices_leave_no_trace() {
        for of_window in [1, 2, 3, 5, 20, 1000] {
            let mut steps = Simulated::new(|_| 1.5e-6);
            let joined = sampled(&mut steps, of_window, 2);
            let mark = joined.mark.device / 1.5e-6 - 1.0;
            assert!(mark.abs() < 1e-6, "{of_window}: {mark}");
            assert!(difference(&joined).abs() < 1e-9);
            for (length, slice) in joined.lengths[..SLICES - 1].iter().zip(&steps.slices) {
                assert!((length.device / slice - 1.0).abs() < 1e-6, "{of_window}");
            }
        }
    }

    /// Where the GPU waits for the host, a mark takes another time than elsewhere. Slices that are shorter than a mark do not make the step longer.
    #[test]
    fn rows_add_up_where_marks_take_different_times() {
        for of_window in [1, 2, 7] {
            let unequal = |place: usize| if place < 30 { 0.6e-6 } else { 2.2e-6 };
            let joined = sampled(&mut Simulated::new(unequal), of_window, 2);
            let difference = difference(&joined);
            assert!(difference.abs() < 0.01, "{of_window}: {difference}");
            assert!(joined.lengths.iter().all(|length| length.device >= 0.0));
        }
    }

    /// A machine that is a third slower at times, and whose operations are unequal.
    #[test]
    fn rows_add_up_on_a_machine_that_is_slower_at_times() {
        for of_window in [1, 3, 10] {
            let mut steps = Simulated::new(|_| 1.5e-6);
            (steps.drift, steps.noise) = (0.08, 0.5);
            let joined = sampled(&mut steps, of_window, 60);
            let difference = difference(&joined);
            assert!(difference.abs() < 0.01, "{of_window}: {difference}");
            // A step of a millisecond with two marks and more.
            let (cost, marks) = (joined.seconds / joined.plain_seconds - 1.0, of_window + 1);
            assert!(cost.abs() < 0.003 * marks as f64, "{of_window}: {cost}");
        }
    }

    /// The sum is not made to fit: operations that take longer with marks, not because of the marks, show in it.
    #[test]
    fn the_sum_is_not_scaled_to_steps_without_marks() {
        let mut steps = Simulated::new(|_| 1e-6);
        let mut slower = Simulated::new(|_| 1e-6);
        slower.slices.iter_mut().for_each(|slice| *slice *= 1.1);
        let joined = sampled_apart(&mut steps, Some(&mut slower), 3, 3);
        let difference = difference(&joined);
        assert!((0.09..0.11).contains(&difference), "{difference}");
    }

    #[test]
    fn windows_of_each_kind_are_the_slices_of_a_step_once() {
        for slices in 1..40 {
            for of_window in 0..12 {
                let windows = Window::of_step(slices, of_window);
                for (is_dense, most) in [(true, of_window.max(1)), (false, of_window.max(APART))] {
                    let own = windows
                        .iter()
                        .filter(|window| window.is_dense() == is_dense);
                    let ranges: Vec<_> = own.map(|window| window.marks.range.clone()).collect();
                    let all: Vec<usize> = ranges.iter().flat_map(|r| r.start..r.end - 1).collect();
                    assert_eq!(all, (0..slices).collect::<Vec<_>>());
                    assert!(ranges.iter().all(|range| range.len() - 1 <= most));
                }
            }
        }
    }

    #[test]
    fn a_window_without_samples_has_slices_of_no_length() {
        let mut steps = Simulated::new(|_| 1e-6);
        let mut windows = Window::of_step(SLICES, 5);
        let joined = join(&windows, &Plain::default());
        assert_eq!(joined.lengths.len(), SLICES);
        assert!(joined.lengths.iter().all(|length| length.device == 0.0));
        // Without steps to compare with, lengths are those of the samples.
        let sample = steps.step(&windows[0].marks());
        let expected = sample.slices[0].device;
        windows[0].add(sample, 0);
        let joined = join(&windows, &Plain::default());
        assert_eq!(joined.lengths[0].device, expected);
        assert_eq!(joined.lengths[10].device, 0.0);
    }

    #[test]
    fn slices_in_which_little_happens_keep_the_sum() {
        let of = |seconds: f64| Time {
            device: seconds,
            host: -seconds,
        };
        let lengths = settled([1.0, -0.5, 2.0, -3.0, 1.0, 3.0].into_iter().map(of));
        let device: Vec<f64> = lengths.iter().map(|length| length.device).collect();
        assert_eq!(device, [1.0, 0.0, 1.5, 0.0, 0.0, 1.0]);
        assert!(lengths.iter().all(|length| length.host >= 0.0));
    }

    #[test]
    fn the_middle_half_is_kept_in_order() {
        let same = |values: &[f64]| middle_half(values.to_vec(), |value| *value);
        assert_eq!(same(&[5.0, 1.0, 9.0, 3.0]), [3.0, 5.0]);
        assert_eq!(same(&[2.0, 1.0, 3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(same(&[7.0]), [7.0]);
        assert!(same(&[]).is_empty());
    }
}
