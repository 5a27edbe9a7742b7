//! Times in turns, and medians.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a case is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often the memory of a case is taken anew. Where tensors lie in memory changes their times.
    pub repeats: usize,
    /// The number of rounds of a repeat. In each round work and floors take turns.
    pub rounds: usize,
    /// The least duration of the work of a round, so that the resolution of the clock does not matter.
    pub round: Duration,
}

impl Effort {
    /// The usual effort, or a small one that shows that everything runs.
    pub fn new(quick: bool) -> Self {
        match quick {
            true => Self {
                repeats: 3,
                rounds: 1,
                round: Duration::from_micros(500),
            },
            false => Self {
                repeats: 9,
                rounds: 5,
                round: Duration::from_millis(4),
            },
        }
    }
}

/// The bytes from which on fewer repeats do: such tensors fill many pages, wherever they lie.
const MANY_BYTES: usize = 64 << 20;

impl Effort {
    /// The effort for a case that moves so many bytes.
    pub fn of_bytes(self, bytes: usize) -> Self {
        let repeats = match bytes > MANY_BYTES {
            true => self.repeats.min(6),
            false => self.repeats,
        };
        Self { repeats, ..self }
    }
}

/// The medians of the rounds of a repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Seconds of the work.
    pub seconds: f64,
    /// Seconds of moving as many bytes.
    pub floor_seconds: f64,
    /// Seconds of as many operations at the rate of multiply-adds.
    pub compute_seconds: f64,
    /// Bytes a second of a large addition in the same moments.
    pub stream_bytes: f64,
    /// The part of the floor's time that its launch takes. It is 0 on the CPU.
    #[serde(default)]
    pub launch_seconds: f64,
    /// Wall seconds of the work on a GPU, launched call by call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<f64>,
    /// Wall seconds of the work on a GPU, replayed as a captured graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_seconds: Option<f64>,
    /// The number of the sweep over all cases that the repeat belongs to. Repeats of one sweep follow each other, so
    /// that what else the machine does may slow all of them.
    pub sweep: usize,
}

/// The number of sweeps over all cases.
pub const SWEEPS: usize = 3;

impl Repeat {
    /// The time of the work in times of what the machine could reach in the same moments: of the floor or of the
    /// operations, whichever takes longer.
    pub fn relative(&self) -> f64 {
        self.seconds / self.floor_seconds.max(self.compute_seconds)
    }
}

/// How often work must be repeated to last for a duration. It also warms the work up.
///
/// # Errors
/// The errors of the work.
pub fn repetitions<E>(
    duration: Duration,
    mut work: impl FnMut() -> Result<(), E>,
) -> Result<usize, E> {
    work()?;
    let start = Instant::now();
    work()?;
    let once = start.elapsed().as_secs_f64().max(1e-9);
    Ok((duration.as_secs_f64() / once).ceil().clamp(1.0, 1e6) as usize)
}

/// The least seconds that work takes once, of some rounds that each last for a duration. Other work of the machine
/// makes times longer, never shorter.
pub(crate) fn least_seconds<E>(
    rounds: usize,
    round: Duration,
    mut work: impl FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    work()?;
    let mut least = seconds(1, &mut work)?;
    let wanted = round.as_secs_f64() / least.max(1e-9);
    let times = wanted.ceil().clamp(1.0, 1e6) as usize;
    // Long work has been timed once by now.
    let is_long = times == 1;
    let mut most = least;
    for _ in usize::from(is_long)..rounds {
        let now = seconds(times, &mut work)?;
        (least, most) = (least.min(now), most.max(now));
    }
    let more = if is_long && rounds > 1 { MORE } else { 0 };
    for _ in 0..more {
        if most < least * ALIKE {
            break;
        }
        most = seconds(times, &mut work)?;
        least = least.min(most);
    }
    Ok(least)
}

/// How often long work is timed again, at most, while its last time is not [`ALIKE`].
const MORE: usize = 3;
/// The ratio of times below which they are alike.
const ALIKE: f64 = 1.05;

/// The seconds that work takes once, when it is done some times in a row.
///
/// # Errors
/// The errors of the work.
pub fn seconds<E>(times: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    for _ in 0..times {
        work()?;
    }
    Ok(start.elapsed().as_secs_f64() / times as f64)
}

/// The median; NaN of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_repeat_is_relative_to_the_slower_floor() {
        let repeat = Repeat {
            seconds: 6.0,
            floor_seconds: 2.0,
            compute_seconds: 3.0,
            ..Repeat::default()
        };
        assert_eq!(repeat.relative(), 2.0);
    }

    #[test]
    fn short_work_is_repeated() {
        let mut calls = 0;
        let times = repetitions::<()>(Duration::from_millis(1), || {
            calls += 1;
            Ok(())
        });
        assert!(times.unwrap() > 100);
        assert_eq!(calls, 2);
    }
}
