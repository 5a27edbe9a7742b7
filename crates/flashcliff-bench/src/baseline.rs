//! Compares a case with a stored run: repeats until the spread allows a verdict.
//!
//! All times are those over what the machine reached in the same moments, so that a slower machine is not a slower program. A verdict of
//! slower needs three things: the ratio is beyond a limit, its interval excludes that nothing changed, and no sweep says otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Kind;
use crate::measure::{Repeat, median};
use crate::report::{Report, Row};
use crate::stats::{Interval, ratio};

/// The numbers of repeats of a sweep after which a verdict is tried.
const LOOKS: [usize; 2] = [12, 20];
/// How often a case is measured again, with others between, if it may be slower or its noise hides that.
pub const AGAIN: usize = 3;
/// The largest ratio of the floors of two runs that may be compared.
const FLOORS: f64 = 2.0;
/// The probability of a false alarm in a run of all cases, if the noise of both runs is the same.
const FALSE_ALARMS: f64 = 0.01;

/// From when on a change counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The part by which a case must be slower for a warning; or faster, to be called so.
    pub warn: f64,
    /// The part by which a case must be slower for a failure.
    pub fail: f64,
    /// The confidence of the interval of each case.
    pub confidence: f64,
}

impl Limits {
    /// Limits in percent, for a comparison of so many cases.
    pub fn percent(warn: f64, fail: f64, cases: usize) -> Self {
        Self {
            warn: warn / 100.0,
            fail: fail / 100.0,
            confidence: 1.0 - FALSE_ALARMS / cases.max(1) as f64,
        }
    }
}

/// The verdict on a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Neither faster nor slower by as much as the warning says.
    Unchanged,
    /// Faster by at least as much as the warning says.
    Faster,
    /// No verdict is possible.
    NotComparable,
    /// Slower by at least as much as the warning says.
    SlowerWarning,
    /// Slower by at least as much as the failure says.
    SlowerFailure,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Faster => "faster",
            Self::NotComparable => "not comparable",
            Self::SlowerWarning => "slower (warning)",
            Self::SlowerFailure => "slower (failure)",
        }
    }

    /// Whether the case is slower.
    pub fn is_slower(self) -> bool {
        matches!(self, Self::SlowerWarning | Self::SlowerFailure)
    }
}

/// A case of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The name of the case.
    pub case: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The time of now over that of before, both relative to their machine.
    pub interval: Option<Interval>,
    /// The number of repeats of now.
    pub repeats: usize,
    /// The reason why no verdict is possible; empty if one is.
    pub reason: String,
    /// Whether the case should be measured again.
    #[serde(skip)]
    pub is_open: bool,
}

impl Comparison {
    /// A case without a verdict.
    pub fn none(case: &str, reason: String) -> Self {
        Self {
            case: case.to_owned(),
            verdict: Verdict::NotComparable,
            interval: None,
            repeats: 0,
            reason,
            is_open: false,
        }
    }

    /// Whether the case is slower by half of what counts, or its noise hides that.
    fn may_be_slower(&self, limits: &Limits) -> bool {
        let is_beyond = |interval: Interval| interval.ratio > 1.0 + limits.warn / 2.0;
        let is_noisy = self.verdict == Verdict::NotComparable;
        is_noisy || self.interval.is_none_or(is_beyond)
    }
}

/// The reason why no case of a stored run can be compared on this machine, if there is one.
pub fn other_machine(before: &Report, now: &Kind) -> Option<String> {
    let was = &before.machine;
    let facts = [
        ("device", &was.device, &now.device),
        ("processor", &was.processor, &now.processor),
        ("architecture", &was.architecture, &now.architecture),
        ("widest SIMD", &was.widest_simd, &now.widest_simd),
    ];
    let differing = facts.into_iter().find(|(_, was, now)| was != now);
    if let Some((what, was, now)) = differing {
        return Some(format!("other machine: {what} was {was}, is {now}"));
    }
    (was.threads != now.threads).then(|| {
        format!(
            "other machine: threads were {}, are {}",
            was.threads, now.threads
        )
    })
}

/// The stored row of a case, or the reason why there is none to compare with.
///
/// # Errors
/// The reason in words.
pub fn stored<'a>(before: &'a Report, name: &str) -> Result<&'a Row, String> {
    let row = before.cases.iter().find(|row| row.name == name);
    let row = row.ok_or("the stored run has no such case")?;
    if row.repeats.is_empty() {
        return Err("the stored run has no repeats of it".to_owned());
    }
    let is_time = |time: f64| time.is_finite() && time > 0.0;
    match row.repeats.iter().map(Repeat::relative).all(is_time) {
        true => Ok(row),
        false => Err("the stored run has times of it that are not above 0".to_owned()),
    }
}

/// Repeats a case until there is a verdict, or the sweep ends. `repeats` holds the repeats that were made already,
/// and gets those that are made, of one more sweep.
///
/// # Errors
/// The errors of `next`.
pub fn compare<E>(
    before: &Row,
    limits: &Limits,
    repeats: &mut Vec<Repeat>,
    mut next: impl FnMut() -> Result<Repeat, E>,
) -> Result<Comparison, E> {
    let had = repeats.len();
    let sweep = repeats.last().map_or(0, |repeat| repeat.sweep + 1);
    let mut last = Comparison::none(&before.name, "no repeats".to_owned());
    for look in LOOKS {
        while repeats.len() < had + look {
            repeats.push(Repeat { sweep, ..next()? });
        }
        let is_last = sweep == AGAIN && Some(&look) == LOOKS.last();
        last = judge(before, limits, repeats, is_last);
        if last.verdict != Verdict::NotComparable {
            break;
        }
    }
    last.is_open = sweep < AGAIN && last.may_be_slower(limits);
    Ok(last)
}

fn judge(before: &Row, limits: &Limits, repeats: &[Repeat], is_last: bool) -> Comparison {
    let relative = |repeats: &[Repeat]| repeats.iter().map(Repeat::relative).collect::<Vec<_>>();
    let interval = ratio(
        &relative(repeats),
        &relative(&before.repeats),
        limits.confidence,
    );
    let decided = interval.and_then(|interval| decide(&interval, limits, is_last));
    let sweeps = sweeps(repeats, &before.repeats);
    let decided = decided.filter(|verdict| match verdict {
        verdict if verdict.is_slower() => sweeps.iter().all(|ratio| *ratio > 1.0),
        Verdict::Faster => sweeps.iter().all(|ratio| *ratio < 1.0),
        _ => true,
    });
    let floor = |repeats: &[Repeat]| {
        let reached = |r: &Repeat| r.floor_seconds.max(r.compute_seconds);
        median(repeats.iter().map(reached).collect())
    };
    let floors = floor(repeats) / floor(&before.repeats);
    let (verdict, reason) = if !(1.0 / FLOORS..=FLOORS).contains(&floors) {
        let reason = format!("the floor takes {floors:.2} times as long as in the stored run");
        (Verdict::NotComparable, reason)
    } else {
        match decided {
            Some(verdict) => (verdict, String::new()),
            None => (Verdict::NotComparable, undecided(interval, before)),
        }
    };
    Comparison {
        case: before.name.clone(),
        verdict,
        interval,
        repeats: repeats.len(),
        reason,
        is_open: false,
    }
}

/// The reason why repeats of now and before allow no verdict.
fn undecided(interval: Option<Interval>, before: &Row) -> String {
    match (interval, before.repeats.len()) {
        (Some(_), _) => "too noisy".to_owned(),
        (None, 1) => "the stored run has 1 repeat of it, too few".to_owned(),
        (None, count) => format!("the stored run has {count} repeats of it, too few"),
    }
}

/// The ratios of the medians of all pairs of sweeps of now and before. If one of them contradicts the others, the
/// machine changed from sweep to sweep by more than the times of a sweep show.
fn sweeps(now: &[Repeat], before: &[Repeat]) -> Vec<f64> {
    let medians = |repeats: &[Repeat]| -> Vec<f64> {
        let mut all: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for repeat in repeats {
            let own = all.entry(repeat.sweep).or_default();
            own.push(repeat.relative());
        }
        all.into_values().map(median).collect()
    };
    let before = medians(before);
    let pairs = |now: f64| before.iter().map(move |before| now / before);
    medians(now).into_iter().flat_map(pairs).collect()
}

/// The verdict that an interval allows, if it allows one. At the last look it is enough to exclude a failure.
fn decide(interval: &Interval, limits: &Limits, is_last: bool) -> Option<Verdict> {
    let Interval {
        low, ratio, high, ..
    } = *interval;
    let (warn, fail) = (1.0 + limits.warn, 1.0 + limits.fail);
    if ratio >= fail && (low > warn || is_last && low > 1.0) {
        return Some(Verdict::SlowerFailure);
    }
    if (warn..fail).contains(&ratio) && low > 1.0 {
        return Some(Verdict::SlowerWarning);
    }
    if ratio <= 1.0 / warn && high < 1.0 {
        return Some(Verdict::Faster);
    }
    let is_near = low > 1.0 / warn && high < warn;
    let excludes_failure = is_last && ratio < warn && high < fail;
    (is_near || excludes_failure).then_some(Verdict::Unchanged)
}

#[cfg(test)]
#[path = "baseline_tests.rs"]
mod tests;
