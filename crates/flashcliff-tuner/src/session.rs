//! The search over the choices of one call, on a GPU.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::ops::ControlFlow;

use flashcliff::cuda::MatmulPrecision;
use flashcliff::cuda::tuning::{
    Algorithm, Candidate, Configuration, Knob, KnobKey, Problem, Seen, WatchedDevice,
};
use flashcliff::{Dtype, Error, Pass, Signature};
use serde::{Serialize, Serializer};

use crate::call::Call;
use crate::clock::Clock;
use crate::search::{Bench, Coordinate, Effort, Gate, Step, Times, Verdict, descend, in_turns};
use crate::tuner::Workload;

/// How many runs must give the same results.
const REPEATS: usize = 3;

/// The subject of a choice.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// The algorithm of a matrix product.
    Product(Problem),
    /// A knob.
    Knob { key: KnobKey, name: String },
}

/// A value that a subject can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Algorithm(Algorithm),
    Value(i64),
}

/// A subject within a pass.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) pass: Pass,
    pub(crate) subject: Subject,
    /// The choice that was in use before the search.
    pub(crate) before: Choice,
    /// The choice that is in use.
    pub(crate) choice: Choice,
    /// The times of the choice before the search and of `choice`, if `choice` was accepted.
    pub(crate) measured: Option<[Times; 2]>,
    /// How many products of the problem the pass has.
    launches: usize,
}

/// A candidate that was tried. Its JSON is a line of the program's log.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Trial {
    /// The operator.
    pub operator: String,
    /// The algebra.
    #[serde(serialize_with = "name")]
    pub algebra: Signature,
    /// The batch.
    pub batch: usize,
    /// The channels of the input.
    #[serde(rename = "in")]
    pub in_channels: usize,
    /// The channels of the output.
    #[serde(rename = "out")]
    pub out_channels: usize,
    /// The type of the tensors.
    #[serde(serialize_with = "displayed")]
    pub dtype: Dtype,
    /// The rounding of matrix products.
    pub precision: MatmulPrecision,
    /// The pass in which the candidate was tried.
    #[serde(serialize_with = "displayed")]
    pub pass: Pass,
    /// The subject of the choice, in words.
    pub subject: String,
    /// The matrix product, if the subject is one.
    problem: Option<Problem>,
    /// The algorithm, if the candidate is one.
    pub configuration: Option<Configuration>,
    /// The value of the knob, if the candidate is one.
    pub value: Option<i64>,
    /// The times of the choice in use: of all products of the problem in a pass, or for a knob of the whole pass.
    pub before: Option<Times>,
    /// The times of the candidate, taken in turns with those.
    pub times: Option<Times>,
    /// The floating-point operations of the candidate a second, for products.
    pub flops_per_second: Option<f64>,
    /// The verdict, in words.
    pub verdict: String,
    /// Whether the candidate is in use now.
    pub accepted: bool,
    /// The number of this candidate, counted from 1.
    pub number: usize,
    /// The number of candidates to try, without the candidates of further sweeps.
    pub of: usize,
}

/// Writes a value as it is displayed.
fn displayed<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes the name of an algebra.
fn name<S: Serializer>(algebra: &Signature, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&algebra.name())
}

/// Observer of candidates; may stop the search.
pub(crate) type Observer<'a> = dyn FnMut(&Trial) -> ControlFlow<()> + 'a;

/// The reason why a candidate cannot be timed.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error(transparent)]
    Core(#[from] Error),
    #[error("{0}")]
    NotTaken(String),
}

impl From<Obstacle> for Error {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Core(error) => error,
            Obstacle::NotTaken(description) => Self::Cuda {
                call: "cublasLtMatmulAlgoCheck",
                name: "the algorithm in use is not taken".to_owned(),
                description,
            },
        }
    }
}

/// The search over the choices of one workload.
pub(crate) struct Session<'a> {
    workload: &'a Workload,
    call: Call,
    watched: &'a WatchedDevice,
    clock: &'a mut Clock,
    gate: &'a Gate,
    candidates: usize,
    observer: &'a mut Observer<'a>,
    parts: Vec<Part>,
    /// The algorithms that were in use or were tried, ready to be forced.
    ready: HashMap<(Problem, [u64; 8]), Candidate>,
    number: usize,
    of: usize,
}

/// The tools that a session works with.
pub(crate) struct Tools<'a> {
    pub(crate) watched: &'a WatchedDevice,
    pub(crate) clock: &'a mut Clock,
    pub(crate) gate: &'a Gate,
    /// The largest number of algorithms that are tried for a product.
    pub(crate) candidates: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        workload: &'a Workload,
        call: Call,
        tools: Tools<'a>,
        observer: &'a mut Observer<'a>,
    ) -> Self {
        let Tools {
            watched,
            clock,
            gate,
            candidates,
        } = tools;
        Self {
            workload,
            call,
            watched,
            clock,
            gate,
            candidates,
            observer,
            parts: Vec::new(),
            ready: HashMap::new(),
            number: 0,
            of: 0,
        }
    }

    /// Tunes the knobs of the call, then its products, since knobs may change which products there are. Returns `Break`
    /// if the observer stopped the search.
    pub(crate) fn search(&mut self, effort: &Effort) -> Result<ControlFlow<()>, Error> {
        for of_knobs in [true, false] {
            let first = self.parts.len();
            let mut coordinates = self.coordinates(of_knobs)?;
            self.of += coordinates
                .iter()
                .map(|c| c.candidates.len() - 1)
                .sum::<usize>();
            let flow = descend(
                &mut Stage {
                    session: self,
                    first,
                },
                &mut coordinates,
                effort,
            );
            if flow?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The subjects that the passes ask for, with their candidates. Each starts with the choice from the tables.
    fn coordinates(&mut self, of_knobs: bool) -> Result<Vec<Coordinate<Choice>>, Error> {
        let mut coordinates = Vec::new();
        for pass in [Pass::Forward, Pass::Backward] {
            self.call.prepare(pass)?;
            self.watched.take_seen();
            self.call.run(pass)?;
            let Seen { products, knobs } = self.watched.take_seen();
            if of_knobs {
                for knob in knobs {
                    coordinates.push(self.add_knob(pass, knob));
                }
            } else {
                for problem in products {
                    coordinates.extend(self.add_product(pass, problem)?);
                }
            }
        }
        Ok(coordinates)
    }

    fn add_knob(&mut self, pass: Pass, knob: Knob) -> Coordinate<Choice> {
        let Knob {
            key,
            name,
            value,
            values,
        } = knob;
        let choice = Choice::Value(value);
        let mut candidates = vec![choice];
        candidates.extend(
            values
                .into_iter()
                .filter(|v| *v != value)
                .map(Choice::Value),
        );
        let subject = Subject::Knob { key, name };
        self.add(pass, subject, choice, candidates)
    }

    /// Adds a matrix product. Returns `None` if the problem is known from the other pass.
    fn add_product(
        &mut self,
        pass: Pass,
        problem: Problem,
    ) -> Result<Option<Coordinate<Choice>>, Error> {
        let known = |part: &Part| matches!(part.subject, Subject::Product(p) if p == problem);
        if self.parts.iter().any(known) {
            return Ok(None);
        }
        let in_use = self.watched.in_use(&problem)?;
        let algorithm = *in_use.algorithm();
        self.ready.insert((problem, algorithm.data), in_use);
        let choice = Choice::Algorithm(algorithm);
        let mut candidates = vec![choice];
        for proposal in self.watched.proposals(&problem, self.candidates)? {
            let proposal = Choice::Algorithm(proposal);
            if !candidates.contains(&proposal) {
                candidates.push(proposal);
            }
        }
        Ok(Some(self.add(
            pass,
            Subject::Product(problem),
            choice,
            candidates,
        )))
    }

    fn add(
        &mut self,
        pass: Pass,
        subject: Subject,
        choice: Choice,
        candidates: Vec<Choice>,
    ) -> Coordinate<Choice> {
        self.parts.push(Part {
            pass,
            subject,
            before: choice,
            choice,
            measured: None,
            launches: 1,
        });
        Coordinate { choice, candidates }
    }

    /// The subjects with the choices that were found.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The times of a pass with the choices before the search and with those in use, taken in turns.
    pub(crate) fn pass_times(&mut self, pass: Pass, rounds: usize) -> Result<[Times; 2], Error> {
        let this = std::cell::RefCell::new(self);
        let time = |before: bool| {
            let mut this = this.borrow_mut();
            for index in 0..this.parts.len() {
                let part = &this.parts[index];
                let choice = if before { part.before } else { part.choice };
                this.force(index, &choice)?;
            }
            // The backward pass needs the saved sums and the output of a forward pass with the same choices.
            if pass == Pass::Backward {
                this.call.prepare(Pass::Forward)?;
                this.call.run(Pass::Forward)?;
            }
            this.time_pass(pass)
        };
        let times = in_turns(rounds, || time(true), || time(false));
        let this = this.into_inner();
        for index in 0..this.parts.len() {
            let choice = this.parts[index].choice;
            this.force(index, &choice)?;
        }
        Ok(times?)
    }

    fn time_pass(&mut self, pass: Pass) -> Result<f64, Obstacle> {
        self.call.prepare(pass)?;
        let call = &mut self.call;
        Ok(self.clock.time(|| call.run(pass))?)
    }

    /// Forces a choice for a part, for the time being.
    fn force(&mut self, index: usize, choice: &Choice) -> Result<(), Obstacle> {
        match (&self.parts[index].subject, choice) {
            (Subject::Knob { key, name }, Choice::Value(value)) => {
                self.watched.force_knob(key.clone(), name.clone(), *value);
            }
            (Subject::Product(problem), Choice::Algorithm(algorithm)) => {
                let candidate = match self.ready.entry((*problem, algorithm.data)) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => {
                        let candidate = self.watched.candidate(problem, algorithm)?;
                        entry.insert(candidate.map_err(Obstacle::NotTaken)?)
                    }
                };
                candidate.force();
            }
            // A part only has choices of its kind.
            _ => {}
        }
        Ok(())
    }

    /// Runs a function with a choice for a part. Afterwards the choice in use is in force again.
    fn with<T>(
        &mut self,
        index: usize,
        choice: &Choice,
        work: impl FnOnce(&mut Self) -> Result<T, Obstacle>,
    ) -> Result<T, Obstacle> {
        self.force(index, choice)?;
        let done = work(self);
        let in_use = self.parts[index].choice;
        self.force(index, &in_use)?;
        done
    }

    /// The seconds of a part in one run of its pass: the seconds of the products of the problem, or for a knob the
    /// seconds of the whole pass.
    fn time_part(&mut self, index: usize) -> Result<f64, Obstacle> {
        let Part { pass, subject, .. } = self.parts[index].clone();
        let Subject::Product(problem) = subject else {
            return self.time_pass(pass);
        };
        let watched = self.watched;
        let run = || self.time_pass(pass).map(drop);
        let (seconds, launches) = watched.seconds_of(&problem, run)?;
        self.parts[index].launches = launches;
        Ok(seconds)
    }

    fn check_results(&mut self) -> Result<Result<(), String>, Obstacle> {
        let first = self.call.results()?;
        if let Err(wrong) = self.gate.check(&first) {
            return Ok(Err(wrong.to_string()));
        }
        for _ in 1..REPEATS {
            let again = self.call.results()?;
            if let Err(wrong) = self.gate.same(&first, &again) {
                return Ok(Err(wrong.to_string()));
            }
        }
        Ok(Ok(()))
    }

    fn observe(&mut self, index: usize, step: &Step<'_, Choice>) -> ControlFlow<()> {
        self.number += 1;
        let part = &mut self.parts[index];
        if step.verdict.is_accepted() {
            part.measured = step.times.map(|[before, after]| {
                let [first, _] = part.measured.unwrap_or([before, after]);
                [first, after]
            });
        }
        let (problem, subject) = match &part.subject {
            Subject::Product(problem) => (Some(*problem), problem.to_string()),
            Subject::Knob { name, .. } => (None, format!("knob {name}")),
        };
        let flops = problem.map(|problem| problem.flops() * part.launches as f64);
        let (configuration, value) = match step.candidate {
            Choice::Algorithm(algorithm) => (Some(algorithm.configuration), None),
            Choice::Value(value) => (None, Some(*value)),
        };
        let [before, times] = match step.times {
            Some(times) => times.map(Some),
            None => [None; 2],
        };
        let seconds = times.map(|times| times.median);
        let Workload {
            operator,
            dims,
            dtype,
            precision,
        } = self.workload;
        (self.observer)(&Trial {
            operator: operator.name().to_owned(),
            algebra: operator.algebra().signature(),
            batch: dims.batch,
            in_channels: dims.in_channels,
            out_channels: dims.out_channels,
            dtype: *dtype,
            precision: *precision,
            pass: part.pass,
            subject,
            problem,
            configuration,
            value,
            before,
            times,
            flops_per_second: flops.zip(seconds).map(|(flops, seconds)| flops / seconds),
            verdict: step.verdict.to_string(),
            accepted: step.verdict == Verdict::Accepted,
            number: self.number,
            of: self.of.max(self.number),
        })
    }
}

/// The parts of a session from `first` on.
struct Stage<'s, 'a> {
    session: &'s mut Session<'a>,
    first: usize,
}

impl Bench for Stage<'_, '_> {
    type Choice = Choice;
    type Error = Obstacle;

    fn time(&mut self, coordinate: usize, choice: &Choice) -> Result<f64, Obstacle> {
        let index = self.first + coordinate;
        let timed = |session: &mut Session<'_>| session.time_part(index);
        self.session.with(index, choice, timed)
    }

    fn check(
        &mut self,
        coordinate: usize,
        choice: &Choice,
    ) -> Result<Result<(), String>, Obstacle> {
        let index = self.first + coordinate;
        self.session.with(index, choice, Session::check_results)
    }

    fn adopt(&mut self, coordinate: usize, choice: &Choice) -> Result<(), Obstacle> {
        let index = self.first + coordinate;
        self.session.parts[index].choice = *choice;
        self.session.force(index, choice)
    }

    fn observe(&mut self, step: &Step<'_, Choice>) -> ControlFlow<()> {
        self.session.observe(self.first + step.coordinate, step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_names() {
        let trial = Trial {
            operator: "mv_linear".to_owned(),
            algebra: Signature::of(1, 3, 0),
            batch: 4,
            in_channels: 5,
            out_channels: 6,
            dtype: Dtype::Bf16,
            precision: MatmulPrecision::Tf32,
            pass: Pass::Backward,
            subject: "knob rows".to_owned(),
            problem: None,
            configuration: None,
            value: Some(7),
            before: None,
            times: None,
            flops_per_second: None,
            verdict: Verdict::NotFaster.to_string(),
            accepted: false,
            number: 1,
            of: 2,
        };
        let value = serde_json::to_value(trial).expect("JSON");
        let names = ["operator", "algebra", "dtype", "precision", "pass"].map(|key| &value[key]);
        assert_eq!(names, ["mv_linear", "cl130", "bf16", "tf32", "backward"]);
        let sizes = ["batch", "in", "out", "value"].map(|key| &value[key]);
        assert_eq!(sizes, [4, 5, 6, 7]);
        assert_eq!(value.as_object().map(|object| object.len()), Some(19));
    }
}
