//! Times work and floor in turns, and takes medians.

use std::time::{Duration, Instant};

use super::cases::Target;
use flashcliff_floor::Floor;

/// How long a case is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    rounds: usize,
    /// The least duration of a round, so that the resolution of the clock does not matter.
    round: Duration,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) name: String,
    /// The bytes that must be moved: each tensor once a pass. `None` if there is no floor.
    pub(super) bytes: Option<usize>,
    pub(super) flops: Option<usize>,
    pub(super) seconds: f64,
    pub(super) floor_seconds: Option<f64>,
    pub(super) target: Option<Target>,
    /// The largest difference from the formula in f64, relative to the largest value of the row.
    pub(super) difference: f64,
    /// The memory of a training step.
    pub(super) memory: Option<Memory>,
}

/// The bytes that a training step needs and takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Parameters, the state of the optimiser and what the forward pass keeps for the backward pass.
    pub(super) counted: usize,
    /// The largest number of bytes on the heap at once: all of these, gradients, workspaces and data.
    pub(super) peak: usize,
    /// The number of bytes that a later step allocates.
    pub(super) allocated: usize,
    /// The largest block among them.
    pub(super) largest_block: usize,
    /// The largest allowed ratio of `peak` to `counted`.
    pub(super) target: Option<f64>,
}

impl Effort {
    /// Twenty-one rounds, or three if `quick`.
    pub(super) fn new(quick: bool) -> Self {
        match quick {
            true => Self {
                rounds: 3,
                round: Duration::from_millis(1),
            },
            false => Self {
                rounds: 21,
                round: Duration::from_millis(5),
            },
        }
    }

    /// The median seconds of the work and of the floor, timed in turns.
    pub(super) fn medians<E>(
        self,
        floor: Option<&mut Floor>,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<(f64, Option<f64>), E> {
        let mut floor = floor.map(|floor| {
            let times = self.repetitions(&mut || -> Result<(), E> {
                floor.run();
                Ok(())
            });
            (floor, times)
        });
        let times = self.repetitions(&mut work)?;
        let (mut seconds, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            if let Some((floor, times)) = &mut floor {
                let times = times.as_ref().copied().unwrap_or(1);
                let start = Instant::now();
                (0..times).for_each(|_| floor.run());
                floors.push(start.elapsed().as_secs_f64() / times as f64);
            }
            let start = Instant::now();
            for _ in 0..times {
                work()?;
            }
            seconds.push(start.elapsed().as_secs_f64() / times as f64);
        }
        Ok((median(seconds), floor.map(|_| median(floors))))
    }

    /// How often work must be repeated to fill a round. It also warms the work up.
    fn repetitions<E>(self, work: &mut impl FnMut() -> Result<(), E>) -> Result<usize, E> {
        work()?;
        let start = Instant::now();
        work()?;
        let once = start.elapsed().as_secs_f64().max(1e-9);
        Ok((self.round.as_secs_f64() / once).ceil().clamp(1.0, 1e6) as usize)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
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
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
