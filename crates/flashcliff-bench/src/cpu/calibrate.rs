//! Measures the rates of this CPU.

use std::time::{Duration, Instant};

use cayley::Signature;
use flashcliff::ops::TABLE;
use flashcliff::{Algebra, Dims, Dtype, Element, Tier, threads};
use flashcliff_floor::{Floor, Width};

use super::buffers::Buffers;
use super::{call_seconds, kind, multiply_rate};
use crate::calibration::{Calibration, FORMAT, Level, OperatorRate};
use crate::grid;
use crate::measure::{median, repetitions, seconds};
use crate::predict::{is_aligned, place, units};
use crate::selection::usual_size;
use crate::work::Work;
use crate::{Case, Error, Passes};

/// The number of sweeps over all operators. A disturbance of the machine hits one of them.
const SWEEPS: usize = 2;

/// The algebras whose operators are measured, and whether by the interpreter.
const ALGEBRAS: [(Signature, bool); 2] = [
    (Signature::of(3, 0, 0), false),
    (Signature::of(3, 0, 0), true),
];

/// The smallest and largest working set of the addition, which grows by factors of two.
const SETS: [usize; 2] = [12 << 10, 384 << 20];

/// How long and how often something is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    round: Duration,
}

impl Effort {
    fn new(quick: bool) -> Self {
        match quick {
            true => Self {
                rounds: 1,
                round: Duration::from_micros(200),
            },
            false => Self {
                rounds: 2,
                round: Duration::from_millis(1),
            },
        }
    }
}

/// Measures everything. `quick` shows that it runs, with rates that mean little. `step` hears what is measured next.
///
/// # Errors
/// The errors of the library.
pub fn calibrate(quick: bool, mut step: impl FnMut(&str)) -> Result<Calibration, Error> {
    let effort = Effort::new(quick);
    step("latencies, multiply-adds and bandwidths");
    let call = call_seconds(effort.rounds)?;
    let rate = |width| -> Result<f64, Error> {
        let rates = (0..effort.rounds).map(|_| multiply_rate(width));
        Ok(median(rates.collect::<Result<_, _>>()?))
    };
    let flops = [rate(Width::Single)?, rate(Width::Double)?];
    let pool_seconds = pool(effort)?;
    let levels = levels(quick, effort)?;
    let mut operators = sweep(effort, call, quick, &mut step)?;
    for _ in 1..SWEEPS {
        let again = sweep(effort, call, quick, &mut step)?;
        for (rate, again) in operators.iter_mut().zip(again) {
            rate.unit_seconds = rate.unit_seconds.min(again.unit_seconds);
        }
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(Calibration {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: now.map_or(0, |now| now.as_secs()),
        machine: kind(),
        simd: Tier::best().name().to_owned(),
        call_seconds: call,
        pool_seconds,
        flops,
        levels,
        operators,
    })
}

/// Measures every operator once, in a fixed order.
fn sweep(
    effort: Effort,
    call: f64,
    quick: bool,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<OperatorRate>, Error> {
    let mut operators = Vec::new();
    for (signature, is_interpreted) in ALGEBRAS {
        let way = if is_interpreted { ", interpreted" } else { "" };
        step(&format!("operators of {}{way}", signature.name()));
        // An algebra that is not compiled in this build is interpreted anyway.
        if !is_interpreted && !Algebra::new(signature)?.is_compiled() {
            continue;
        }
        for operator in TABLE {
            let case = |dims| Case {
                operator: operator.name,
                signature,
                is_interpreted,
                dtype: Dtype::F32,
                passes: Passes::Forward,
                dims,
            };
            let usual = usual_size(operator.name, signature)?;
            for dims in grid::sizes(usual, is_interpreted, quick) {
                measure::<f32>(&case(dims), call, effort, &mut operators)?;
                measure::<f64>(&case(dims), call, effort, &mut operators)?;
            }
        }
    }
    Ok(operators)
}

/// The least time of work: other work of the machine makes times longer, never shorter.
fn time(effort: Effort, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let times = repetitions(effort.round, &mut work)?;
    let mut least = f64::INFINITY;
    for _ in 0..effort.rounds {
        least = least.min(seconds(times, &mut work)?);
    }
    Ok(least)
}

/// Adds the rates of a case in a type, for both choices of passes.
fn measure<T: Element>(
    case: &Case,
    call: f64,
    effort: Effort,
    rates: &mut Vec<OperatorRate>,
) -> Result<(), Error> {
    let operator = case.bind()?;
    let mut buffers = Buffers::<T>::new(case)?;
    for passes in Passes::ALL {
        let work = Work::of(&operator, &case.dims, T::DTYPE, passes);
        let seconds = time(effort, || buffers.run(passes))?;
        let own = (seconds - call * passes.calls() as f64).max(seconds / 10.0);
        let place = place(&operator, &case.dims, T::DTYPE);
        rates.push(OperatorRate {
            operator: case.operator.to_owned(),
            algebra: case.signature.name(),
            blades: operator.algebra().blade_count(),
            is_interpreted: case.is_interpreted,
            dtype: T::DTYPE.to_string(),
            passes,
            is_aligned: is_aligned(&case.dims, T::DTYPE),
            bytes: work.bytes,
            elements: place.elements,
            channels: place.channels,
            starts: place.starts,
            unit_seconds: own / units(&operator, &case.dims, T::DTYPE, passes),
        });
    }
    Ok(())
}

/// The rates of additions and copies, by working set.
fn levels(quick: bool, effort: Effort) -> Result<Vec<Level>, Error> {
    let mut levels = Vec::new();
    let mut bytes = SETS[0];
    let largest = if quick { 1 << 20 } else { SETS[1] };
    while bytes <= largest {
        let mut floor = Floor::of_bytes(bytes);
        let moved = floor.bytes() as f64;
        // Threads cost more than they save where there are few bytes.
        let spread = time(effort, || {
            floor.run();
            Ok(())
        })?;
        let alone = time(effort, || {
            floor.run_alone();
            Ok(())
        })?;
        let copy = time(effort, || {
            floor.copy();
            Ok(())
        })?;
        levels.push(Level {
            bytes: floor.bytes(),
            add: moved / spread.min(alone),
            copy: moved * 2.0 / 3.0 / copy,
        });
        bytes *= 2;
    }
    Ok(levels)
}

/// The seconds of a task for every thread that does next to nothing.
fn pool(effort: Effort) -> Result<f64, Error> {
    let count = threads::count();
    let once = || {
        let start = Instant::now();
        flashcliff_floor::multiply_add(Width::Single, count, 1);
        start.elapsed().as_secs_f64()
    };
    once();
    Ok(median((0..100 * effort.rounds).map(|_| once()).collect()))
}

/// The cases that a calibration is tried on, none of which it measured: other batches and channels.
pub fn held_out(quick: bool) -> Result<Vec<Case>, Error> {
    let sizes: &[[usize; 2]] = match quick {
        true => &[[24, 8]],
        false => &[
            [100, 48],
            [512, 128],
            [700, 96],
            [1500, 64],
            [2048, 64],
            [3000, 80],
        ],
    };
    let mut cases = Vec::new();
    for (signature, is_interpreted) in ALGEBRAS {
        for operator in TABLE {
            let usual = usual_size(operator.name, signature)?;
            for &[batch, channels] in sizes {
                let dims = Dims {
                    // Operators that do much more work have smaller sizes.
                    batch: (batch * usual.batch).div_ceil(4096),
                    in_channels: (channels * usual.in_channels).div_ceil(128),
                    out_channels: (channels * usual.in_channels).div_ceil(128),
                };
                for dtype in [Dtype::F32, Dtype::F64] {
                    for passes in Passes::ALL {
                        cases.push(Case {
                            operator: operator.name,
                            signature,
                            is_interpreted,
                            dtype,
                            passes,
                            dims,
                        });
                    }
                }
            }
        }
    }
    Ok(cases)
}

/// The least time of a case, for comparison with its prediction.
///
/// # Errors
/// The errors of the library.
pub fn measured(case: &Case, quick: bool) -> Result<f64, Error> {
    let usual = Effort::new(quick);
    // As many as all sweeps of a calibration.
    let rounds = SWEEPS * usual.rounds;
    let effort = Effort { rounds, ..usual };
    match case.dtype {
        Dtype::F64 => {
            let mut buffers = Buffers::<f64>::new(case)?;
            time(effort, || buffers.run(case.passes))
        }
        _ => {
            let mut buffers = Buffers::<f32>::new(case)?;
            time(effort, || buffers.run(case.passes))
        }
    }
}
