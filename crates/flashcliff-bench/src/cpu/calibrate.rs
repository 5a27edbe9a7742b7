//! The rates of this CPU.

use std::collections::BTreeMap;
use std::time::Instant;

use cayley::Signature;
use flashcliff::{Dims, Dtype, Element, Tier, threads};
use flashcliff_floor::{Floor, Width};

use super::buffers::Buffers;
use super::{Cpu, addition_seconds, call_seconds, multiply_rate};
use crate::calibrate::{Calibrate, Choice, Latencies, Pace};
use crate::calibration::Level;
use crate::grid::Grid;
use crate::measure::{least_seconds, median};
use crate::place::Place;
use crate::selection::usual_size;
use crate::{Case, Error, Passes};

impl Calibrate for Cpu {
    const CHOICE: Choice = Choice {
        dtypes: &[Dtype::F32, Dtype::F64],
        interprets: true,
        grid: Grid {
            // Lanes: one task in the smallest cache, threads in caches, memory. Few channels: the start of a row is most of it.
            widths: &[
                (4, &[1, 8, 64, 256]),
                // The largest is written past the caches, the next one just not.
                (16, &[1, 8, 64, 256, 480, 512]),
                (1, &[1, 64]),
            ],
            more_rows: &[0, 3],
            by_bytes: true,
        },
        sets: [12 << 10, 384 << 20],
    };

    fn place(&self) -> Place {
        Place::Cpu
    }

    fn simd(&self) -> String {
        Tier::best().name().to_owned()
    }

    fn usual_size(&self, operator: &'static str) -> Result<Dims, Error> {
        usual_size(operator, Signature::of(3, 0, 0), false)
    }

    fn latencies(&mut self, pace: Pace) -> Result<Latencies, Error> {
        Ok(Latencies {
            call: call_seconds(pace.rounds)?,
            pool: pool(pace),
        })
    }

    fn flops(&mut self, pace: Pace) -> Result<BTreeMap<String, f64>, Error> {
        let rate = |(dtype, width): (Dtype, Width)| {
            let rates = (0..pace.rounds).map(|_| multiply_rate(width));
            let rates = rates.collect::<Result<Vec<f64>, Error>>()?;
            Ok((dtype.to_string(), median(rates)))
        };
        [(Dtype::F32, Width::Single), (Dtype::F64, Width::Double)]
            .into_iter()
            .map(rate)
            .collect()
    }

    fn level(&mut self, bytes: usize, _: f64, pace: Pace) -> Result<Level, Error> {
        let mut floor = Floor::of_bytes(bytes);
        let moved = floor.bytes() as f64;
        let add = addition_seconds(&mut floor, pace.rounds, pace.round)?;
        let copy = time(pace, || {
            floor.copy();
            Ok(())
        })?;
        Ok(Level {
            bytes: floor.bytes(),
            add: moved / add,
            copy: moved * 2.0 / 3.0 / copy,
        })
    }

    fn least_seconds(
        &mut self,
        case: &Case,
        passes: &[Passes],
        pace: Pace,
    ) -> Result<Vec<f64>, Error> {
        match case.dtype {
            Dtype::F64 => times::<f64>(case, passes, pace),
            _ => times::<f32>(case, passes, pace),
        }
    }
}

fn times<T: Element>(case: &Case, passes: &[Passes], pace: Pace) -> Result<Vec<f64>, Error> {
    let mut buffers = Buffers::<T>::new(case)?;
    let times = passes
        .iter()
        .map(|&passes| time(pace, || buffers.run(passes)));
    times.collect()
}

/// The least time of work.
fn time(pace: Pace, work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    least_seconds(pace.rounds, pace.round, work)
}

/// The seconds of a task for every thread that does next to nothing.
fn pool(pace: Pace) -> f64 {
    let count = threads::count();
    let once = || {
        let start = Instant::now();
        flashcliff_floor::multiply_add(Width::Single, count, 1);
        start.elapsed().as_secs_f64()
    };
    once();
    median((0..100 * pace.rounds).map(|_| once()).collect())
}
