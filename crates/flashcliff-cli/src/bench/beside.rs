//! Measures cases beside a stored run.

use std::path::Path;
use std::process::ExitCode;

use flashcliff_bench::baseline::{
    AGAIN, Comparison, Limits, Verdict, compare, other_machine, stored,
};
use flashcliff_bench::measure::{Effort, Repeat};
use flashcliff_bench::report::{Report, Row};
use tracing::info;

use super::suite::Suite;
use crate::error::Error;

/// Reads a stored run.
///
/// # Errors
/// [`Error::Read`], [`Error::NotReport`].
pub(super) fn read(path: &Path) -> Result<Report, Error> {
    let text = std::fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    Report::read(&text).map_err(|source| Error::NotReport {
        path: path.to_owned(),
        source,
    })
}

/// The exit status: 4 after a failure, 3 after a warning, else 0.
pub(super) fn status(comparisons: &[Comparison]) -> ExitCode {
    let worst = comparisons.iter().map(|comparison| comparison.verdict);
    match worst.max() {
        Some(Verdict::SlowerFailure) => ExitCode::from(4),
        Some(Verdict::SlowerWarning) => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    }
}

/// A stored run to measure beside.
pub(super) struct Beside<'a> {
    before: &'a Report,
    limits: Limits,
    effort: Effort,
}

/// A case that was measured, to be measured again if it seems slower.
struct Measured<'a, C> {
    case: &'a C,
    row: &'a Row,
    repeats: Vec<Repeat>,
    /// The place among the comparisons of the report.
    place: usize,
}

impl<'a> Beside<'a> {
    pub(super) fn new(before: &'a Report, limits: Limits, effort: Effort) -> Self {
        Self {
            before,
            limits,
            effort,
        }
    }

    /// Measures cases until there are verdicts, and adds both to the report.
    ///
    /// # Errors
    /// A wrong result, tensors that have no room.
    pub(super) fn measure<S: Suite>(
        &self,
        cases: &[&'a S::Case],
        report: &mut Report,
        suite: &mut S,
    ) -> Result<(), Error> {
        if let Some(reason) = other_machine(self.before, &report.machine) {
            let none = cases
                .iter()
                .map(|case| Comparison::none(&S::name(case), reason.clone()));
            report.comparisons.extend(none);
            return Ok(());
        }
        let mut all = Vec::new();
        let mut subject = None;
        for &case in cases {
            let name = S::name(case);
            info!("{name}");
            let row = match stored(self.before, &name) {
                Ok(row) => row,
                Err(reason) => {
                    report.comparisons.push(Comparison::none(&name, reason));
                    continue;
                }
            };
            let mut measured = Measured {
                case,
                row,
                repeats: Vec::new(),
                place: report.comparisons.len(),
            };
            let (now, comparison) = self.more(&mut measured, subject.take(), suite)?;
            report.comparisons.push(comparison);
            let repeats = measured.repeats.clone();
            let row = S::row(case, suite.facts(&now), repeats, &report.rates);
            report.cases.push(row);
            subject = Some(now);
            all.push(measured);
        }
        // Other work of the machine may have been in the way; some time later it may be gone.
        for _ in 0..AGAIN {
            for measured in &mut all {
                if report.comparisons[measured.place].is_open {
                    info!("{}, again", S::name(measured.case));
                    let (_, comparison) = self.more(measured, None, suite)?;
                    report.comparisons[measured.place] = comparison;
                }
            }
        }
        Ok(())
    }

    /// Repeats a case until there is a verdict.
    fn more<S: Suite>(
        &self,
        measured: &mut Measured<'a, S::Case>,
        subject: Option<S::Subject>,
        suite: &mut S,
    ) -> Result<(S::Subject, Comparison), Error> {
        let case = measured.case;
        suite.check_room(case)?;
        let mut subject = suite.subject(subject, case)?;
        let comparison = compare(measured.row, &self.limits, &mut measured.repeats, || {
            suite.repeat(&mut subject, self.effort)
        })?;
        Ok((subject, comparison))
    }
}
