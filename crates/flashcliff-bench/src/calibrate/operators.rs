//! The sweeps over all operators, and the rates that come from them.
//!
//! Sizes are listed first. Each sweep measures those that are open, and keeps the lesser times; rates are computed from the times at the end.

use std::time::Duration;

use flashcliff::Algebra;
use flashcliff::ops::TABLE;

use super::{ALGEBRA, Calibrate, Pace, SWEEPS, ways, without};
use crate::calibration::OperatorRate;
use crate::place::Place;
use crate::work::Work;
use crate::{Case, Error, Form, Passes};

/// A size whose shortest pass lasts so long is measured in the first sweep only. Its tensors fill many pages, wherever they lie, and work that long is timed
/// again at once where its times differ.
const LONG: Duration = Duration::from_millis(1);

/// A size of an operator, with the least times found so far.
struct Found {
    case: Case,
    /// Seconds, of all choices of passes; empty before the first sweep.
    seconds: Vec<f64>,
}

impl Found {
    /// Whether the next sweep measures it.
    fn is_open(&self) -> bool {
        let shortest = self.seconds.iter().copied().reduce(f64::min);
        shortest.is_none_or(|seconds| seconds < LONG.as_secs_f64())
    }
}

/// Measures every operator in some sweeps, in a fixed order.
pub(super) fn rates<T: Calibrate>(
    target: &mut T,
    call: f64,
    pace: Pace,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<OperatorRate>, Error> {
    let mut all = Vec::new();
    for &is_interpreted in ways::<T>() {
        all.push((is_interpreted, sizes(target, is_interpreted, pace)?));
    }
    for _ in 0..SWEEPS.min(target.sweeps()) {
        for (is_interpreted, sizes) in &mut all {
            let way = if *is_interpreted { ", interpreted" } else { "" };
            step(&format!("operators of {}{way}", ALGEBRA.name()));
            for found in sizes.iter_mut().filter(|found| found.is_open()) {
                target.check_room(&found.case)?;
                let times = target.least_seconds(&found.case, &Passes::ALL, pace)?;
                found.seconds = match &found.seconds[..] {
                    [] => times,
                    before => before.iter().zip(times).map(|(a, b)| a.min(b)).collect(),
                };
            }
        }
    }
    let place = target.place();
    let mut rates = Vec::new();
    for found in all.iter().flat_map(|(_, sizes)| sizes) {
        add_rates(&place, found, call, &mut rates)?;
    }
    Ok(rates)
}

/// The sizes of all operators that are measured, compiled or interpreted.
fn sizes<T: Calibrate>(target: &T, is_interpreted: bool, pace: Pace) -> Result<Vec<Found>, Error> {
    // An algebra that a CPU has no kernels of is interpreted anyway.
    let is_missing = !Algebra::new(ALGEBRA)?.is_compiled();
    if T::CHOICE.interprets && !is_interpreted && is_missing {
        return Ok(Vec::new());
    }
    let place = target.place();
    let mut sizes = Vec::new();
    for operator in TABLE {
        let usual = target.usual_size(operator.name)?;
        for &dtype in T::CHOICE.dtypes {
            for dims in T::CHOICE.grid.sizes(usual, dtype, pace.quick) {
                let compiled = Case {
                    operator: operator.name,
                    signature: ALGEBRA,
                    is_interpreted: false,
                    form: Form::Given,
                    dtype,
                    passes: Passes::Forward,
                    dims,
                };
                // An operator without compiled kernels in this type is measured as it is.
                if is_interpreted && place.is_interpreted(&compiled.bind()?, dtype) {
                    continue;
                }
                sizes.push(Found {
                    case: Case {
                        is_interpreted,
                        ..compiled
                    },
                    seconds: Vec::new(),
                });
            }
        }
    }
    Ok(sizes)
}

/// Adds the rates of a size, for all choices of passes.
fn add_rates(
    place: &Place,
    found: &Found,
    call: f64,
    rates: &mut Vec<OperatorRate>,
) -> Result<(), Error> {
    let case = &found.case;
    let operator = case.bind()?;
    let is_interpreted = place.is_interpreted(&operator, case.dtype);
    let point = place.point(&operator, &case.dims, case.dtype);
    for (passes, &seconds) in Passes::ALL.into_iter().zip(&found.seconds) {
        let work = Work::of(&operator, &case.dims, case.dtype, passes);
        let units = place.units(&operator, &case.dims, case.dtype, passes);
        rates.push(OperatorRate {
            operator: case.operator.to_owned(),
            algebra: case.signature.name(),
            blades: operator.algebra().blade_count(),
            is_interpreted,
            dtype: case.dtype.to_string(),
            passes,
            is_aligned: place.is_aligned(&case.dims, case.dtype),
            is_streamed: place.is_streamed(&operator, &case.dims, case.dtype),
            bytes: work.bytes,
            elements: point.elements,
            channels: point.channels,
            starts: point.starts,
            unit_seconds: without(seconds, call * passes.calls() as f64) / units,
        });
    }
    Ok(())
}
