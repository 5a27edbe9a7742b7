//! Times of work in turns with floors.

use std::collections::BTreeMap;
use std::time::Duration;

use flashcliff::Dtype;
use flashcliff_floor::{Floor, Width};

use super::{Stream, multiply_rate};
use crate::Error;
use crate::measure::{Effort, Repeat, median, repetitions, seconds};
use crate::work::Call;

/// The floor of work that consists of calls: for each call an addition that moves as many bytes, one after another.
#[derive(Debug)]
struct Floors(Vec<OfCalls>);

/// The addition of all calls that move the same number of bytes.
#[derive(Debug)]
struct OfCalls {
    floor: Floor,
    calls: usize,
    /// Whether threads cost more than they save.
    is_alone: bool,
}

impl OfCalls {
    fn add(&mut self) {
        match self.is_alone {
            true => self.floor.run_alone(),
            false => self.floor.run(),
        }
    }

    /// Tries with and without threads.
    fn choose(&mut self, round: Duration) -> Result<(), Error> {
        let [spread, alone] = [false, true].map(|is_alone| {
            self.is_alone = is_alone;
            repetitions(round, || {
                self.add();
                Ok::<(), Error>(())
            })
        });
        self.is_alone = alone? > spread?;
        Ok(())
    }
}

impl Floors {
    /// The floor of calls that move so many bytes.
    fn of(bytes: impl IntoIterator<Item = usize>) -> Self {
        let mut counts = BTreeMap::new();
        for bytes in bytes {
            *counts.entry(bytes).or_insert(0) += 1;
        }
        let each = counts.into_iter().map(|(bytes, calls)| OfCalls {
            floor: Floor::of_bytes(bytes),
            calls,
            is_alone: false,
        });
        Self(each.collect())
    }

    fn run(&mut self) -> Result<(), Error> {
        for each in &mut self.0 {
            for _ in 0..each.calls {
                each.add();
            }
        }
        Ok(())
    }
}

/// Times work of these calls, floors and multiply-adds in turns, and a large addition.
pub(super) fn beside<E: From<Error>>(
    stream: &mut Stream,
    calls: &[Call],
    effort: Effort,
    mut work: impl FnMut() -> Result<(), E>,
) -> Result<Repeat, E> {
    let width = match calls.iter().any(|call| call.dtype == Dtype::F64) {
        true => Width::Double,
        false => Width::Single,
    };
    let flops: usize = calls.iter().map(|call| call.flops).sum();
    let mut floors = Floors::of(calls.iter().map(|call| call.bytes));
    let times = repetitions(effort.round, &mut work)?;
    let share = effort.round / u32::try_from(floors.0.len().max(1)).unwrap_or(u32::MAX);
    for floor in &mut floors.0 {
        floor.choose(share)?;
    }
    let floor_times = repetitions(effort.round, || floors.run())?;
    let [mut own, mut of_floors, mut bursts] = [const { Vec::new() }; 3];
    for _ in 0..effort.rounds {
        of_floors.push(seconds(floor_times, || floors.run())?);
        bursts.push(flops as f64 / multiply_rate(width)?);
        own.push(seconds(times, &mut work)?);
    }
    Ok(Repeat {
        seconds: median(own),
        floor_seconds: median(of_floors),
        compute_seconds: median(bursts),
        stream_bytes: stream.rate()?,
        ..Repeat::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_equal_bytes_share_an_addition() {
        let floors = Floors::of([1200, 24, 1200, 1200]);
        let found: Vec<(usize, usize)> = floors
            .0
            .iter()
            .map(|each| (each.floor.bytes(), each.calls))
            .collect();
        assert_eq!(found, [(24, 1), (1200, 3)]);
    }
}
