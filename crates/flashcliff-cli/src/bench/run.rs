//! Measures the chosen cases.

use flashcliff_bench::baseline::Limits;
use flashcliff_bench::measure::Repeat;
use flashcliff_bench::report::{Counts, Report, Row};
use flashcliff_bench::{Case, Target};
use tracing::info;

use super::BenchArgs;
use super::beside::Beside;
use super::step::{self, Step};
use crate::device::DeviceName;
use crate::error::Error;

/// Measures all chosen cases, beside a stored run if there is one.
///
/// # Errors
/// A wrong result, a name that no case has, tensors that have no room.
pub(super) fn measure<T: Target>(
    args: &BenchArgs,
    before: Option<&Report>,
    target: &mut T,
) -> Result<Report, Error> {
    let cases = args.selection().cases()?;
    // A training step has one size, and is one of the CPU.
    let is_all = args.device.name() == DeviceName::Cpu
        && args.operator.is_empty()
        && args.algebra.is_empty()
        && args.shape.is_empty();
    let step = Step::new(args.quick);
    let step = (is_all && args.dtype.is_empty()).then_some(step);
    let names = cases.iter().map(Case::name);
    let names = names.chain(step.as_ref().map(Step::name));
    let is_wanted = wanted(args, names.collect())?;
    let rates = target.rates()?;
    let mut report = Report::new(target.kind()?, rates, args.quick);
    let cases: Vec<&Case> = cases
        .iter()
        .filter(|case| is_wanted(&case.name()))
        .collect();
    if let Some(before) = before {
        let limits = Limits::percent(args.warn, args.fail, cases.len());
        Beside::new(before, limits, args.effort(0)).measure(&cases, &mut report, target)?;
        return Ok(report);
    }
    // Cases take turns, so that what else the machine does for a while does not hit all repeats of a case.
    let mut found: Vec<(Counts, Vec<Repeat>)> = Vec::new();
    let sweeps = target.sweeps();
    for sweep in 0..sweeps {
        let mut subject = None;
        for (place, &case) in cases.iter().enumerate() {
            if sweep == 0 {
                info!("{}", case.name());
                target.check_room(case)?;
            }
            let mut now = target.subject(subject.take(), case)?;
            let counts = target.counts(&now);
            if sweep == 0 {
                found.push((counts, Vec::new()));
            }
            let effort = args.effort(counts.bytes);
            let repeats = &mut found[place].1;
            for _ in 0..effort.repeats.div_ceil(sweeps) {
                let repeat = target.repeat(&mut now, effort)?;
                repeats.push(Repeat { sweep, ..repeat });
            }
            subject = Some(now);
        }
    }
    for (case, (counts, repeats)) in cases.into_iter().zip(found) {
        let row = Row::of_operator(case, counts, repeats, &report.rates);
        report.cases.push(row);
    }
    if let Some(step) = step.filter(|step| is_wanted(&step.name())) {
        info!("{}", step.name());
        report.cases.push(step::run(&step, args.effort(0))?);
    }
    Ok(report)
}

/// A test of names, once it is known that one passes.
fn wanted(args: &BenchArgs, names: Vec<String>) -> Result<impl Fn(&str) -> bool + '_, Error> {
    let is_wanted = |name: &str| args.only.as_deref().is_none_or(|part| name.contains(part));
    if names.iter().any(|name| is_wanted(name)) {
        return Ok(is_wanted);
    }
    Err(Error::UnknownCase {
        expected: names.join(", "),
        got: args.only.clone().unwrap_or_default(),
    })
}
