//! Steps put together from simulated ones, whose slices and marks are known.

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

/// Where the GPU waits for the host, a mark takes another time than elsewhere. Slices that are shorter than a mark do
/// not make the step longer.
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
    // Without steps to compare with, lengths are the lengths of the samples.
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
