//! Coordinate descent: for one coordinate after the other, every candidate is compared with the choice in use.

use std::fmt;
use std::ops::ControlFlow;

use super::measure::{Times, in_turns};

/// How long candidates are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Rounds of a first measurement, in turns with the choice in use.
    pub rounds: usize,
    /// Rounds of a second measurement, for candidates that were faster in the first.
    pub confirming_rounds: usize,
    /// The share by which a candidate must be faster, beyond the scatter of the times. A negative share accepts slower
    /// candidates.
    pub lead: f64,
    /// The largest number of sweeps over all coordinates; the search ends earlier if nothing changes. From the second
    /// sweep on only candidates that came close are tried.
    pub sweeps: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            rounds: 5,
            confirming_rounds: 15,
            lead: 0.02,
            sweeps: 2,
        }
    }
}

/// The factor up to which a slower candidate counts as close, and may win in a later sweep.
const CLOSE: f64 = 1.1;

/// The result of trying a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The candidate is right, and was faster twice: it is in use now.
    Accepted,
    /// The candidate is not faster than the choice in use.
    NotFaster,
    /// The candidate was faster in the first measurement, but not in the second.
    NotConfirmed,
    /// The candidate is faster, but its results are wrong, or not the same in every run.
    Wrong {
        /// The difference that was found.
        reason: String,
    },
    /// The candidate did not run.
    Failed {
        /// The reason that was given.
        reason: String,
    },
}

impl Verdict {
    /// Whether the candidate is in use now.
    pub fn is_accepted(&self) -> bool {
        *self == Self::Accepted
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::NotFaster => f.write_str("not faster"),
            Self::NotConfirmed => f.write_str("not faster when measured again"),
            Self::Wrong { reason } => write!(f, "wrong: {reason}"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}

/// A setting that can be chosen, with its candidates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Coordinate<C> {
    /// The choice that is in use.
    pub(crate) choice: C,
    pub(crate) candidates: Vec<C>,
}

/// A candidate that was tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step<'a, C> {
    pub(crate) coordinate: usize,
    pub(crate) candidate: &'a C,
    /// The times of the choice in use and of the candidate, in the last measurement. `None` if the candidate did not
    /// run.
    pub(crate) times: Option<[Times; 2]>,
    pub(crate) verdict: Verdict,
}

/// The operations that a search needs: timing, checking and adopting choices.
pub(crate) trait Bench {
    type Choice: Clone + PartialEq;
    type Error: fmt::Display;

    /// The seconds of one run with a choice for a coordinate, while all others stay in use.
    fn time(&mut self, coordinate: usize, choice: &Self::Choice) -> Result<f64, Self::Error>;

    /// Whether results are right with a choice for a coordinate. If not, the difference that was found.
    fn check(
        &mut self,
        coordinate: usize,
        choice: &Self::Choice,
    ) -> Result<Result<(), String>, Self::Error>;

    /// Takes a choice into use.
    fn adopt(&mut self, coordinate: usize, choice: &Self::Choice) -> Result<(), Self::Error>;

    /// Reports a candidate. The observer may stop the search.
    fn observe(&mut self, step: &Step<'_, Self::Choice>) -> ControlFlow<()>;
}

/// Searches, and leaves the best choices in `coordinates`. Returns `Break` if the bench stops the search; candidates
/// that were accepted before stay in use.
///
/// # Errors
/// The errors of the choices in use. A candidate that does not run is rejected.
pub(crate) fn descend<B: Bench>(
    bench: &mut B,
    coordinates: &mut [Coordinate<B::Choice>],
    effort: &Effort,
) -> Result<ControlFlow<()>, B::Error> {
    for sweep in 0..effort.sweeps {
        let mut changed = false;
        for (index, coordinate) in coordinates.iter_mut().enumerate() {
            let mut close = Vec::new();
            for candidate in std::mem::take(&mut coordinate.candidates) {
                if candidate == coordinate.choice {
                    continue;
                }
                let (verdict, times) =
                    attempt(bench, index, &coordinate.choice, &candidate, effort)?;
                let step = Step {
                    coordinate: index,
                    candidate: &candidate,
                    times,
                    verdict,
                };
                let flow = bench.observe(&step);
                let may_win = times.is_some_and(|[old, new]| new.median < CLOSE * old.median);
                match step.verdict {
                    Verdict::Accepted => {
                        changed = true;
                        let before = std::mem::replace(&mut coordinate.choice, candidate);
                        close.push(before);
                    }
                    Verdict::NotFaster | Verdict::NotConfirmed if may_win => close.push(candidate),
                    _ => {}
                }
                if flow.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            coordinate.candidates = close;
        }
        // A single coordinate is done: no other choice has changed.
        if !changed || coordinates.len() < 2 || sweep + 1 == effort.sweeps {
            break;
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Compares a candidate with the choice in use, and takes it into use if it is accepted.
fn attempt<B: Bench>(
    bench: &mut B,
    coordinate: usize,
    choice: &B::Choice,
    candidate: &B::Choice,
    effort: &Effort,
) -> Result<(Verdict, Option<[Times; 2]>), B::Error> {
    // Marks errors as errors of the candidate or of the choice in use.
    let measure = |bench: &mut B, rounds| {
        let bench = std::cell::RefCell::new(bench);
        let time = |choice, is_candidate| {
            let time = bench.borrow_mut().time(coordinate, choice);
            time.map_err(|error| (error, is_candidate))
        };
        in_turns(rounds, || time(choice, false), || time(candidate, true))
    };
    let failed = |error: B::Error| {
        let reason = error.to_string();
        Ok((Verdict::Failed { reason }, None))
    };
    let first = match measure(bench, effort.rounds) {
        Ok(times) => times,
        Err((error, true)) => return failed(error),
        Err((error, false)) => return Err(error),
    };
    let beats = |[old, new]: [Times; 2]| new.beat(&old, effort.lead);
    if !beats(first) {
        return Ok((Verdict::NotFaster, Some(first)));
    }
    match bench.check(coordinate, candidate) {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => return Ok((Verdict::Wrong { reason }, Some(first))),
        Err(error) => return failed(error),
    }
    let second = match measure(bench, effort.confirming_rounds) {
        Ok(times) => times,
        Err((error, true)) => return failed(error),
        Err((error, false)) => return Err(error),
    };
    if !beats(second) {
        return Ok((Verdict::NotConfirmed, Some(second)));
    }
    bench.adopt(coordinate, candidate)?;
    Ok((Verdict::Accepted, Some(second)))
}

#[cfg(test)]
mod tests {
    use super::super::gate::{Expected, Gate, Tolerance};
    use super::*;
    use flashcliff::Dtype;

    /// A bench with times from a table and an operator that may be wrong.
    struct Fake {
        /// The seconds of each coordinate and choice. They are added up over all coordinates.
        seconds: Vec<Vec<f64>>,
        in_use: Vec<usize>,
        /// The results of the choices of the first coordinate.
        results: Vec<f64>,
        fails: Option<usize>,
        /// A candidate that is faster only once.
        lucky: Option<usize>,
        runs: usize,
        seen: Vec<(usize, usize, Verdict)>,
        stop_after: usize,
    }

    impl Fake {
        fn new(seconds: &[&[f64]]) -> Self {
            Self {
                seconds: seconds.iter().map(|s| s.to_vec()).collect(),
                in_use: vec![0; seconds.len()],
                results: vec![1.0; 10],
                fails: None,
                lucky: None,
                runs: 0,
                seen: Vec::new(),
                stop_after: usize::MAX,
            }
        }

        fn coordinates(&self) -> Vec<Coordinate<usize>> {
            let each = self.seconds.iter().map(|seconds| Coordinate {
                choice: 0,
                candidates: (0..seconds.len()).collect(),
            });
            each.collect()
        }

        fn search(&mut self) -> Result<(ControlFlow<()>, Vec<usize>), String> {
            let mut coordinates = self.coordinates();
            let flow = descend(self, &mut coordinates, &Effort::default())?;
            let choices: Vec<usize> = coordinates.iter().map(|c| c.choice).collect();
            assert_eq!(choices, self.in_use);
            Ok((flow, choices))
        }

        fn verdicts(&self, coordinate: usize, choice: usize) -> Vec<&Verdict> {
            let seen = self.seen.iter();
            let seen = seen.filter(|(at, which, _)| (*at, *which) == (coordinate, choice));
            seen.map(|(_, _, verdict)| verdict).collect()
        }
    }

    impl Bench for Fake {
        type Choice = usize;
        type Error = String;

        fn time(&mut self, coordinate: usize, choice: &usize) -> Result<f64, String> {
            self.runs += 1;
            if self.fails == Some(*choice) {
                return Err("does not run".to_owned());
            }
            let mut seconds = self.seconds[coordinate][*choice];
            let rounds = Effort::default().rounds;
            if self.lucky == Some(*choice) && self.runs <= 2 * (rounds + 1) {
                seconds /= 2.0;
            }
            // Some noise, the same for all choices.
            Ok(seconds * (1.0 + 0.002 * (self.runs % 3) as f64))
        }

        fn check(
            &mut self,
            coordinate: usize,
            choice: &usize,
        ) -> Result<Result<(), String>, String> {
            let expected = Expected::new("o", vec![1.0]);
            let gate = Gate::new(
                vec![expected],
                Tolerance {
                    dtype: Dtype::F32,
                    terms: 1,
                },
            );
            let got = if coordinate == 0 {
                self.results[*choice]
            } else {
                1.0
            };
            Ok(gate.check(&[vec![got]]).map_err(|wrong| wrong.to_string()))
        }

        fn adopt(&mut self, coordinate: usize, choice: &usize) -> Result<(), String> {
            self.in_use[coordinate] = *choice;
            Ok(())
        }

        fn observe(&mut self, step: &Step<'_, usize>) -> ControlFlow<()> {
            let seen = (step.coordinate, *step.candidate, step.verdict.clone());
            self.seen.push(seen);
            match self.seen.len() >= self.stop_after {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }

    #[test]
    fn the_fastest_of_each_coordinate_is_found() {
        let mut fake = Fake::new(&[&[5.0, 4.0, 6.0, 3.0, 3.5], &[1.0, 2.0], &[9.0, 8.0]]);
        let (flow, choices) = fake.search().unwrap();
        assert_eq!(flow, ControlFlow::Continue(()));
        assert_eq!(choices, [3, 0, 1]);
        assert_eq!(*fake.verdicts(0, 2)[0], Verdict::NotFaster);
    }

    #[test]
    fn a_lead_within_the_noise_changes_nothing() {
        let mut fake = Fake::new(&[&[1.0, 0.99, 0.985]]);
        assert_eq!(fake.search().unwrap().1, [0]);
    }

    #[test]
    fn a_wrong_candidate_is_rejected_however_fast() {
        let mut fake = Fake::new(&[&[5.0, 0.1, 4.0]]);
        fake.results[1] = 1.001;
        assert_eq!(fake.search().unwrap().1, [2]);
        let verdicts = fake.verdicts(0, 1);
        let [Verdict::Wrong { reason }] = verdicts[..] else {
            panic!("{verdicts:?}");
        };
        assert!(reason.contains("expected"), "{reason}");
    }

    #[test]
    fn a_candidate_that_does_not_run_is_rejected_and_what_is_in_use_must() {
        let mut fake = Fake::new(&[&[5.0, 0.1, 4.0]]);
        fake.fails = Some(1);
        assert_eq!(fake.search().unwrap().1, [2]);
        assert!(matches!(fake.verdicts(0, 1)[..], [Verdict::Failed { .. }]));
        fake.fails = Some(0);
        fake.in_use = vec![0];
        assert_eq!(fake.search(), Err("does not run".to_owned()));
    }

    #[test]
    fn luck_does_not_last() {
        let mut fake = Fake::new(&[&[5.0, 5.0]]);
        fake.lucky = Some(1);
        assert_eq!(fake.search().unwrap().1, [0]);
        assert_eq!(fake.verdicts(0, 1), [&Verdict::NotConfirmed]);
    }

    #[test]
    fn what_was_accepted_before_an_interruption_stays() {
        let mut fake = Fake::new(&[&[5.0, 4.0, 1.0], &[9.0, 1.0]]);
        fake.stop_after = 1;
        let (flow, choices) = fake.search().unwrap();
        assert_eq!(flow, ControlFlow::Break(()));
        assert_eq!(choices, [1, 0]);
    }
}
