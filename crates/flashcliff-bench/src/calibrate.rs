//! Measures the rates of a device, for predictions, and the cases that predictions are tried on.
//!
//! * `operators` - the sweeps over the operators.

mod operators;

use std::collections::BTreeMap;
use std::time::Duration;

use cayley::Signature;
use flashcliff::ops::TABLE;
use flashcliff::{Dims, Dtype};

use crate::calibration::{Calibration, FORMAT, Level};
use crate::grid::Grid;
use crate::place::Place;
use crate::selection::square;
use crate::target::Target;
use crate::{Case, Error, Form, Passes};

/// The number of sweeps over all operators. A disturbance of the machine hits one of them.
const SWEEPS: usize = 2;

/// The algebra whose operators are measured.
const ALGEBRA: Signature = Signature::of(3, 0, 0);

/// How long and how often something is measured.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Whether little is measured, to see that it runs.
    pub quick: bool,
    /// How often.
    pub rounds: usize,
    /// The least duration of a measurement of the CPU.
    pub round: Duration,
}

impl Pace {
    /// The usual pace, or a quick one.
    pub fn new(quick: bool) -> Self {
        match quick {
            true => Self {
                quick,
                rounds: 1,
                round: Duration::from_micros(200),
            },
            false => Self {
                quick,
                rounds: 2,
                round: Duration::from_millis(1),
            },
        }
    }
}

/// The choices of what is measured on a device.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The element types.
    pub dtypes: &'static [Dtype],
    /// Whether operators are interpreted too.
    pub interprets: bool,
    /// The sizes: from little work to tensors that no cache holds.
    pub grid: Grid,
    /// The smallest and largest working set of the addition, which grows by factors of two.
    pub sets: [usize; 2],
}

/// The times that no size changes.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// Seconds of a call with next to no work.
    pub call: f64,
    /// Seconds of handing work to all threads and waiting for them; 0 of a GPU.
    pub pool: f64,
}

/// A device whose rates can be measured, to be kept.
pub trait Calibrate: Target {
    /// The choices of what is measured.
    const CHOICE: Choice;

    /// The device.
    fn place(&self) -> Place;

    /// The vectors that operators use; `none` of a GPU.
    fn simd(&self) -> String;

    /// The size at which an operator keeps the device busy.
    ///
    /// # Errors
    /// The errors of the library.
    fn usual_size(&self, operator: &'static str) -> Result<Dims, Error>;

    /// Measures the latencies.
    ///
    /// # Errors
    /// The errors of the library.
    fn latencies(&mut self, pace: Pace) -> Result<Latencies, Error>;

    /// Measures the operations a second by the name of an element type: multiply-adds of a CPU, products of matrices of a GPU.
    ///
    /// # Errors
    /// The errors of the library.
    fn flops(&mut self, pace: Pace) -> Result<BTreeMap<String, f64>, Error>;

    /// Measures an addition and a copy with a working set of so many bytes.
    ///
    /// # Errors
    /// The errors of the library.
    fn level(&mut self, bytes: usize, call: f64, pace: Pace) -> Result<Level, Error>;

    /// The least seconds of a case, of each of the passes. Other work of the machine makes times longer, never shorter.
    ///
    /// # Errors
    /// The errors of the library.
    fn least_seconds(
        &mut self,
        case: &Case,
        passes: &[Passes],
        pace: Pace,
    ) -> Result<Vec<f64>, Error>;
}

/// Measures everything. `quick` shows that it runs, with rates that mean little. `step` hears what is measured next.
///
/// # Errors
/// The errors of the library.
pub fn calibrate<T: Calibrate>(
    target: &mut T,
    quick: bool,
    mut step: impl FnMut(&str),
) -> Result<Calibration, Error> {
    let pace = Pace::new(quick);
    step("latencies, operations and bandwidths");
    let Latencies { call, pool } = target.latencies(pace)?;
    let flops = target.flops(pace)?;
    let levels = levels(target, call, pace)?;
    let operators = operators::rates(target, call, pace, &mut step)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(Calibration {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: now.map_or(0, |now| now.as_secs()),
        machine: target.kind()?,
        simd: target.simd(),
        call_seconds: call,
        pool_seconds: pool,
        flops,
        levels,
        operators,
        steps: Vec::new(),
    })
}

/// The ways to run operators: compiled, interpreted.
fn ways<T: Calibrate>() -> &'static [bool] {
    match T::CHOICE.interprets {
        true => &[false, true],
        false => &[false],
    }
}

/// A time without its latency, which it may not be shorter than.
pub(crate) fn without(seconds: f64, latency: f64) -> f64 {
    (seconds - latency).max(seconds / 10.0)
}

/// The rates of additions and copies, by working set.
fn levels<T: Calibrate>(target: &mut T, call: f64, pace: Pace) -> Result<Vec<Level>, Error> {
    let [mut bytes, largest] = T::CHOICE.sets;
    let largest = if pace.quick { 1 << 20 } else { largest };
    let mut levels = Vec::new();
    while bytes <= largest {
        levels.push(target.level(bytes, call, pace)?);
        bytes *= 2;
    }
    Ok(levels)
}

/// The cases that a calibration is tried on, none of which it measured: other batches and channels.
///
/// # Errors
/// The errors of the library.
pub fn held_out<T: Calibrate>(target: &T, quick: bool) -> Result<Vec<Case>, Error> {
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
    for &is_interpreted in ways::<T>() {
        for operator in TABLE {
            let usual = target.usual_size(operator.name)?;
            for &[batch, channels] in sizes {
                let channels = (channels * usual.in_channels).div_ceil(128);
                // Operators that do much more work have smaller sizes.
                let dims = square((batch * usual.batch).div_ceil(4096), channels);
                for &dtype in T::CHOICE.dtypes {
                    cases.extend(Passes::ALL.map(|passes| Case {
                        operator: operator.name,
                        signature: ALGEBRA,
                        is_interpreted,
                        form: Form::Given,
                        dtype,
                        passes,
                        dims,
                    }));
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
pub fn measured<T: Calibrate>(target: &mut T, case: &Case, quick: bool) -> Result<f64, Error> {
    // As often as all sweeps of a calibration, each in memory of its own: where tensors lie changes their times.
    let mut least = f64::INFINITY;
    for _ in 0..SWEEPS.min(target.sweeps()) {
        let times = target.least_seconds(case, &[case.passes], Pace::new(quick))?;
        least = times.into_iter().fold(least, f64::min);
    }
    Ok(least)
}
