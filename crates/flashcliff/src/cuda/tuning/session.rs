//! The search over the choices of one call, on a GPU.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;

use super::call::Call;
use super::clock::Clock;
use super::search::{Bench, Coordinate, Effort, Gate, Step, Times, Verdict, descend, in_turns};
use super::table::{Algorithm, Configuration, KnobKey, names};
use super::tuner::Workload;
use crate::cuda::matmul::{BlasLt, Knob, MatmulPrecision, Plan, Problem, Watch};
use crate::operator::Pass;
use crate::{Dtype, Error, Signature};

/// How many runs must give the same results.
const REPEATS: usize = 3;

/// The subject of a choice.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// The algorithm of a matrix product.
    Product(Problem),
    /// A knob.
    Knob { key: KnobKey, name: String },
}

/// A value that a subject can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    Algorithm(Algorithm),
    Value(i64),
}

/// A subject within a pass.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) pass: Pass,
    pub(super) subject: Subject,
    /// The choice that was in use before the search.
    pub(super) before: Choice,
    /// The choice that is in use.
    pub(super) choice: Choice,
    /// The times of the choice before the search and of `choice`, if `choice` was accepted.
    pub(super) measured: Option<[Times; 2]>,
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
    #[serde(with = "names::algebra")]
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
    #[serde(with = "names::dtype")]
    pub dtype: Dtype,
    /// The rounding of matrix products.
    pub precision: MatmulPrecision,
    /// The pass in which the candidate was tried.
    #[serde(with = "names::pass")]
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
    /// The number of candidates to try, without those of further sweeps.
    pub of: usize,
}

/// Observer of candidates; may stop the search.
pub(super) type Observer<'a> = dyn FnMut(&Trial) -> ControlFlow<()> + 'a;

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
pub(super) struct Session<'a> {
    workload: &'a Workload,
    call: Call,
    watch: Arc<Watch>,
    clock: &'a mut Clock,
    /// cuBLASLt; `None` for operators without matrix products of it.
    blas: Option<Arc<BlasLt>>,
    gate: &'a Gate,
    candidates: usize,
    observer: &'a mut Observer<'a>,
    parts: Vec<Part>,
    plans: HashMap<(Problem, [u64; 8]), Arc<Plan>>,
    number: usize,
    of: usize,
}

/// The tools that a session works with.
pub(super) struct Tools<'a> {
    pub(super) watch: Arc<Watch>,
    pub(super) clock: &'a mut Clock,
    pub(super) blas: Option<Arc<BlasLt>>,
    pub(super) gate: &'a Gate,
    /// The largest number of algorithms that are tried for a product.
    pub(super) candidates: usize,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        call: Call,
        tools: Tools<'a>,
        observer: &'a mut Observer<'a>,
    ) -> Self {
        let Tools {
            watch,
            clock,
            blas,
            gate,
            candidates,
        } = tools;
        Self {
            workload,
            call,
            watch,
            clock,
            blas,
            gate,
            candidates,
            observer,
            parts: Vec::new(),
            plans: HashMap::new(),
            number: 0,
            of: 0,
        }
    }

    /// Tunes the knobs of the call, then its products, since knobs may change which products there are. Returns `Break`
    /// if the observer stopped the search.
    pub(super) fn search(&mut self, effort: &Effort) -> Result<ControlFlow<()>, Error> {
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
            self.watch.take_seen();
            self.call.run(pass)?;
            let (problems, knobs) = self.watch.take_seen();
            if of_knobs {
                for knob in knobs {
                    coordinates.push(self.add_knob(pass, knob));
                }
            } else {
                for problem in problems {
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
        let Some(blas) = self.blas.clone() else {
            return Ok(None);
        };
        let algorithm = blas.algorithm(&problem)?;
        self.plans
            .insert((problem, algorithm.data), blas.plan(&problem)?);
        let choice = Choice::Algorithm(algorithm);
        let mut candidates = vec![choice];
        for proposal in blas.proposals(&problem, self.candidates)? {
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
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The times of a pass with the choices before the search and with those in use, taken in turns.
    pub(super) fn pass_times(&mut self, pass: Pass, rounds: usize) -> Result<[Times; 2], Error> {
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
                self.watch.force_knob(key.clone(), name.clone(), *value);
            }
            (Subject::Product(problem), Choice::Algorithm(algorithm)) => {
                let problem = *problem;
                let place = (problem, algorithm.data);
                if !self.plans.contains_key(&place)
                    && let Some(blas) = &self.blas
                {
                    let plan = blas.plan_with(&problem, algorithm)?;
                    self.plans.insert(place, plan.map_err(Obstacle::NotTaken)?);
                }
                if let Some(plan) = self.plans.get(&place) {
                    self.watch.force(problem, plan.clone());
                }
            }
            // A part only has choices of its own kind.
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

    /// The seconds of a part in one run of its pass: those of the products of the problem, or for a knob those of the
    /// whole pass.
    fn time_part(&mut self, index: usize) -> Result<f64, Obstacle> {
        let Part { pass, subject, .. } = self.parts[index].clone();
        let Subject::Product(problem) = subject else {
            return self.time_pass(pass);
        };
        self.watch.time(Some(problem));
        let run = self.time_pass(pass);
        let taken = self.watch.take_seconds();
        self.watch.time(None);
        run?;
        let (seconds, launches) = taken?;
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
