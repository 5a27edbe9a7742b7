//! Times two choices in turns, so that drifts over time affect both.

use serde::Serialize;

/// The times of a choice, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// The median of the times.
    pub median: f64,
    /// The median of the distances from that median.
    pub spread: f64,
}

impl Times {
    /// The summary of a list of times; infinite if the list is empty.
    pub(crate) fn of(times: &[f64]) -> Self {
        let centre = median(times);
        let distances: Vec<f64> = times.iter().map(|time| (time - centre).abs()).collect();
        Self {
            median: centre,
            spread: median(&distances),
        }
    }

    /// Whether these times are lower than others by a share of those, beyond the scatter of both.
    pub(super) fn beat(&self, others: &Self, share: f64) -> bool {
        let margin = share * others.median + self.spread.max(others.spread);
        self.median < others.median - margin
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => f64::INFINITY,
        (Some(&value), 1) => value,
        (Some(&value), _) => (sorted[middle - 1] + value) / 2.0,
    }
}

/// Times two choices in turns. Each comes first in every second round. One run of each before that does not count. The
/// first error ends the measurement.
pub(crate) fn in_turns<E>(
    rounds: usize,
    mut one: impl FnMut() -> Result<f64, E>,
    mut other: impl FnMut() -> Result<f64, E>,
) -> Result<[Times; 2], E> {
    let mut times = [Vec::new(), Vec::new()];
    one()?;
    other()?;
    for round in 0..rounds {
        if round % 2 == 0 {
            times[0].push(one()?);
            times[1].push(other()?);
        } else {
            times[1].push(other()?);
            times[0].push(one()?);
        }
    }
    Ok(times.map(|times| Times::of(&times)))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn medians_and_spreads() {
        let times = Times::of(&[5.0, 1.0, 2.0, 100.0, 3.0]);
        assert_eq!((times.median, times.spread), (3.0, 2.0));
        assert_eq!(Times::of(&[1.0, 2.0]).median, 1.5);
        assert_eq!(Times::of(&[]).median, f64::INFINITY);
    }

    #[test]
    fn a_lead_must_exceed_the_noise() {
        let times = |median, spread| Times { median, spread };
        let before = times(100.0, 0.5);
        assert!(times(97.0, 0.5).beat(&before, 0.02));
        assert!(!times(98.5, 0.5).beat(&before, 0.02));
        assert!(!times(97.0, 4.0).beat(&before, 0.02));
        assert!(!times(97.0, 0.5).beat(&times(100.0, 4.0), 0.02));
        assert!(!times(f64::NAN, 0.5).beat(&before, 0.02));
    }

    #[test]
    fn both_take_turns() {
        let order = RefCell::new(String::new());
        let run = |name| {
            order.borrow_mut().push(name);
            Ok::<f64, ()>(1.0)
        };
        in_turns(3, || run('a'), || run('b')).unwrap();
        assert_eq!(*order.borrow(), "ababbaab");
        assert_eq!(in_turns(3, || Err(1), || Ok(1.0)), Err(1));
    }
}
