//! Measures the chosen cases.

use candle_core::Device;
use flashcliff_bench::baseline::Limits;
use flashcliff_bench::measure::Repeat;
use flashcliff_bench::report::Report;
use flashcliff_bench::{Case, Target};
use tracing::info;

use super::BenchArgs;
use super::beside::Beside;
use super::networks::{NetworkCase, Networks};
use super::suite::{Operators, Suite};
use crate::error::Error;

/// Measures all chosen cases, beside a stored run if there is one.
///
/// # Errors
/// A wrong result, a name that no case has, tensors that have no room.
pub(super) fn measure<T: Target>(
    args: &BenchArgs,
    before: Option<&Report>,
    (device, target): (&Device, &mut T),
) -> Result<Report, Error> {
    let operators = match args.has_operators() {
        true => args.selection().cases()?,
        false => Vec::new(),
    };
    let networks = args.networks().cases();
    let names = operators.iter().map(Case::name);
    let names = names.chain(networks.iter().map(NetworkCase::name));
    let is_wanted = wanted(args, names.collect())?;
    let operators: Vec<&Case> = operators
        .iter()
        .filter(|case| is_wanted(&case.name()))
        .collect();
    let networks: Vec<&NetworkCase> = networks
        .iter()
        .filter(|case| is_wanted(&case.name()))
        .collect();
    let rates = target.rates()?;
    let mut report = Report::new(target.kind()?, rates, args.quick);
    let run = Run {
        args,
        before,
        cases: operators.len() + networks.len(),
    };
    run.add(&mut Operators(target), &operators, &mut report)?;
    if !networks.is_empty() {
        let mut suite = Networks::new(device, target);
        run.add(&mut suite, &networks, &mut report)?;
    }
    Ok(report)
}

/// How cases are measured.
struct Run<'a> {
    args: &'a BenchArgs,
    before: Option<&'a Report>,
    /// The number of all cases.
    cases: usize,
}

impl Run<'_> {
    /// Adds the rows of cases to the report, or their verdicts too.
    fn add<S: Suite>(
        &self,
        suite: &mut S,
        cases: &[&S::Case],
        report: &mut Report,
    ) -> Result<(), Error> {
        let args = self.args;
        if let Some(before) = self.before {
            let limits = Limits::percent(args.warn, args.fail, self.cases);
            return Beside::new(before, limits, args.effort(0)).measure(cases, report, suite);
        }
        // Cases take turns, so that what else the machine does for a while does not hit all repeats of a case.
        let mut found: Vec<(S::Facts, Vec<Repeat>)> = Vec::new();
        let sweeps = suite.sweeps();
        for sweep in 0..sweeps {
            let mut subject = None;
            for (place, &case) in cases.iter().enumerate() {
                if sweep == 0 {
                    info!("{}", S::name(case));
                    suite.check_room(case)?;
                }
                let mut now = suite.subject(subject.take(), case)?;
                if sweep == 0 {
                    found.push((suite.facts(&now), Vec::new()));
                }
                let (facts, repeats) = &mut found[place];
                let effort = args.effort(S::bytes(facts));
                for _ in 0..effort.repeats.div_ceil(sweeps) {
                    let repeat = suite.repeat(&mut now, effort)?;
                    repeats.push(Repeat { sweep, ..repeat });
                }
                *facts = suite.facts(&now);
                subject = Some(now);
            }
        }
        for (case, (facts, repeats)) in cases.iter().zip(found) {
            report
                .cases
                .push(S::row(case, facts, repeats, &report.rates));
        }
        Ok(())
    }
}

/// A test of names, once it is known that one passes.
fn wanted(args: &BenchArgs, names: Vec<String>) -> Result<impl Fn(&str) -> bool + '_, Error> {
    let is_wanted = |name: &str| args.only.as_deref().is_none_or(|part| name.contains(part));
    if names.iter().any(|name| is_wanted(name)) {
        return Ok(is_wanted);
    }
    if names.is_empty() {
        let types: Vec<String> = args.dtype.iter().map(|t| t.dtype().to_string()).collect();
        let [named, algebras] = [
            [&args.operator[..], &args.layer, &args.network].concat(),
            args.algebra.iter().map(|a| a.name()).collect(),
        ];
        return Err(Error::NoCase {
            got: [named, types, algebras].concat().join(", "),
        });
    }
    Err(Error::UnknownCase {
        expected: names.join(", "),
        got: args.only.clone().unwrap_or_default(),
    })
}
