//! The model, optimiser and history of a run: steps, saving, resuming.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::capture::{Fallback, Feed, Step};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::layers::transformer::Draws;
use flashcliff_candle::models::Model;
use flashcliff_candle::optim::{Adam, LossScale, LossScaleState};
use flashcliff_tasks::{Dataset, SplitName};
use serde::{Deserialize, Deserializer, Serialize};

use super::batches::Batches;
use super::capture::{CaptureName, CapturedSteps, StepArgs};
use super::evaluate::{mean_squared_error, samples};
use super::forces::ForceErrors;
use super::settings::Settings;
use super::start::{Part, Start, StartSeconds};
use super::team::{Order, Team};
use super::trainer::Trainer;
use crate::device::DeviceName;
use crate::error::Error;

pub(super) const HISTORY: &str = "history";
/// The losses of the history, as a tensor: texts lie in the header of a file, whose size is limited.
const LOSSES: &str = "history.losses";
pub(super) const MODEL: &str = "model.";
const BEST: &str = "best.";
const OPTIMISER: &str = "adam.";
/// The name of the state that a run on several GPUs starts from, in place of that of a file.
const START: &str = "the start from rank 0";

/// The history of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    /// The number of steps that are done, which is also the position in the order of the batches.
    pub(super) step: usize,
    /// The mean squared error of the batch of every step, before the step. States of before there was [`LOSSES`] have it in the text.
    #[serde(default, skip_serializing)]
    pub(super) losses: Vec<f32>,
    /// The steps and errors of the validations. JSON has no NaN and no infinity: they are written as `null`, and `null` is read as NaN.
    #[serde(deserialize_with = "validations")]
    pub(super) validations: Vec<(usize, f64)>,
    /// The best of the validations.
    pub(super) best: Option<(usize, f64)>,
    /// The time spent on steps and validations, in seconds.
    pub(super) seconds: f64,
}

fn validations<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<(usize, f64)>, D::Error> {
    let stored = Vec::<(usize, Option<f64>)>::deserialize(input)?;
    let read = |(step, error): (usize, Option<f64>)| (step, error.unwrap_or(f64::NAN));
    Ok(stored.into_iter().map(read).collect())
}

impl History {
    /// Checks that the last validation error is finite.
    ///
    /// # Errors
    /// [`Error::DivergedOn`].
    pub(super) fn check_validation(&self) -> Result<(), Error> {
        match self.validations.last() {
            Some(&(step, error)) if !error.is_finite() => Err(Error::DivergedOn {
                split: SplitName::Validation,
                step,
                error,
            }),
            _ => Ok(()),
        }
    }
}

/// The largest number of steps between two looks at the losses, on a GPU. On the CPU it is 1.
const INTERVAL: usize = 64;
/// The largest number of samples that are ordered ahead.
const AHEAD: usize = 1 << 22;

/// A run in progress.
#[derive(Debug)]
pub(super) struct Session<'a> {
    settings: Settings,
    data: &'a Dataset,
    device: Device,
    model: Model,
    adam: Rc<RefCell<Adam>>,
    /// The random numbers of dropout, if there is any.
    draws: Option<Draws>,
    batches: Batches,
    /// The samples of the next steps.
    order: Vec<u32>,
    feed: Feed,
    step: Step<'static>,
    steps: StepArgs,
    /// The bytes of the buffers of a step.
    buffer_bytes: Option<usize>,
    start: Start,
    /// The step before the first one of this session.
    base: usize,
    /// The milliseconds of a step, for each interval of this session.
    intervals: Vec<f64>,
    history: History,
    best: BTreeMap<String, Tensor>,
    /// The other ranks. It comes after the step, whose graph uses it.
    team: Option<Rc<Team>>,
}

/// Where a run computes, and how.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) trainer: Trainer,
    /// The other ranks, if there are any.
    pub(super) team: Option<Rc<Team>>,
    pub(super) steps: StepArgs,
}

/// A saved run.
#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: Settings,
    history: History,
    checkpoint: Checkpoint,
}

impl State {
    /// The steps that are done, and the settings.
    pub(super) fn progress(&self) -> (usize, &Settings) {
        (self.history.step, &self.settings)
    }

    /// Reads a state.
    ///
    /// # Errors
    /// A file that cannot be read, is corrupt or is not a state.
    pub(super) fn load(path: &Path) -> Result<Self, Error> {
        Self::of(Checkpoint::load(path)?, path)
    }

    /// Reads a state that rank 0 of a run has sent.
    ///
    /// # Errors
    /// The errors of [`State::load`], except errors of files.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let path = Path::new(START);
        Self::of(Checkpoint::from_bytes(bytes, path)?, path)
    }

    fn of(checkpoint: Checkpoint, path: &Path) -> Result<Self, Error> {
        let not_state = |reason: String| Error::NotState {
            path: path.to_owned(),
            reason,
        };
        let lacks = |key: &str| not_state(format!("no {key}"));
        let settings = Settings::stored(&checkpoint, path)?;
        let settings = settings.ok_or_else(|| lacks("settings"))?;
        let history = checkpoint.text(HISTORY).ok_or_else(|| lacks(HISTORY))?;
        let mut history: History = serde_json::from_str(history)
            .map_err(|error| not_state(format!("{HISTORY}: {error}")))?;
        if let Some(losses) = checkpoint.tensors().get(LOSSES) {
            let losses = losses.to_vec1();
            history.losses = losses.map_err(|error| not_state(format!("{LOSSES}: {error}")))?;
        }
        if history.step > settings.steps || history.losses.len() != history.step {
            return Err(not_state(format!(
                "{} losses at step {} of {}",
                history.losses.len(),
                history.step,
                settings.steps
            )));
        }
        Ok(Self {
            settings,
            history,
            checkpoint,
        })
    }
}

impl<'a> Session<'a> {
    /// Makes a run before its first step.
    pub(super) fn new(
        settings: Settings,
        data: &'a Dataset,
        place: Place,
        mut start: Start,
    ) -> Result<Self, Error> {
        let mut session = start.part(Part::Model, || Self::make(settings, data, place))?;
        session.start = start;
        Ok(session)
    }

    fn make(settings: Settings, data: &'a Dataset, place: Place) -> Result<Self, Error> {
        let Place {
            device,
            trainer,
            team,
            steps,
        } = place;
        let Trainer {
            model,
            adam,
            mut objective,
            draws,
        } = trainer;
        let (points, targets) = samples(&data.train, 0..data.train.len(), &device)?;
        let ranks = team.as_ref().map_or(1, |team| team.size());
        let rows = settings.batch.min(data.train.len()) / ranks;
        let buffer_bytes = objective.buffer_bytes();
        let adam = Rc::new(RefCell::new(adam));
        let interval = match device.is_cpu() {
            true => 1,
            false => (AHEAD / rows).clamp(1, INTERVAL),
        };
        let feed = Feed::new(vec![points, targets], rows, interval)?;
        let step = {
            let (adam, team) = (adam.clone(), team.clone());
            Step::new(&feed, steps.capture.into(), move |batch| {
                let loss = match &team {
                    None => objective.evaluate_in_place(batch)?,
                    Some(team) => team.evaluate(&mut objective, batch, steps.buckets())?,
                };
                adam.borrow_mut().objective_step(&mut objective, &loss)?;
                Ok(loss)
            })
        };
        Ok(Self {
            batches: Batches::new(data.train.len(), settings.batch, settings.seed),
            order: Vec::new(),
            adam,
            draws,
            feed,
            step,
            steps,
            buffer_bytes,
            start: Start::begin(DeviceName::Cpu),
            base: 0,
            intervals: Vec::new(),
            device,
            model,
            settings,
            data,
            history: History::default(),
            best: BTreeMap::new(),
            team,
        })
    }

    /// Continues a saved run.
    ///
    /// # Errors
    /// Tensors that are missing or do not fit the model; weights of another algebra or norm.
    pub(super) fn resume(
        state: State,
        data: &'a Dataset,
        place: Place,
        start: Start,
    ) -> Result<Self, Error> {
        let mut session = Self::new(state.settings, data, place, start)?;
        session.model.import(MODEL, &state.checkpoint)?;
        let adam = &session.adam;
        adam.borrow_mut().import(OPTIMISER, &state.checkpoint)?;
        if let Some(draws) = &session.draws {
            // Each part of a batch is a pass. The counter is not a part of the state, since it counts passes behind a refused step too.
            let passes = state.history.step * session.settings.optimiser.accumulate;
            draws.continue_after(passes as u32)?;
        }
        if state.history.best.is_some() {
            session.model.parameters().check(BEST, &state.checkpoint)?;
            for (name, var) in session.model.parameters().variables() {
                let stored = format!("{BEST}{name}");
                let tensor = state.checkpoint.get(&stored, var.dims(), var.dtype())?;
                session
                    .best
                    .insert(name, tensor.to_device(&session.device)?);
            }
        }
        session.base = state.history.step;
        session.history = state.history;
        Ok(session)
    }

    /// The settings.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The steps that are done, and the settings.
    pub(super) fn progress(&self) -> (usize, &Settings) {
        (self.history.step, &self.settings)
    }

    /// The history so far.
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The other ranks of the run, if there are any.
    pub(super) fn team(&self) -> Option<&Team> {
        self.team.as_deref()
    }

    /// Sends the start of the run from rank 0 to the others. There it has come with [`Order::Start`].
    pub(super) fn share_start(&self) -> Result<(), Error> {
        if let Some(team) = &self.team {
            let state = self.checkpoint()?.bytes(START)?;
            team.order(&Order::Start(state))?;
        }
        self.share_data()
    }

    /// Fills the training data with the data of rank 0.
    pub(super) fn share_data(&self) -> Result<(), Error> {
        match &self.team {
            Some(team) => team.broadcast(self.feed.tensors()),
            None => Ok(()),
        }
    }

    /// The number of trainable parameters.
    pub(super) fn parameter_count(&self) -> usize {
        self.model.parameters().element_count()
    }

    /// Runs some steps, at most `most` of them, and stops before the next validation. Returns their losses.
    ///
    /// # Errors
    /// [`Error::Diverged`], [`Error::GradientNotFinite`]: the state is then that before the step. [`Error::NotCaptured`].
    pub(super) fn advance(&mut self, most: usize) -> Result<&[f32], Error> {
        let start = Instant::now();
        let first = self.history.step;
        let mut steps = self.until_validation().min(most).min(self.feed.capacity());
        let (rate, next) = self.settings.learning_rate(first);
        if let Some(next) = next {
            steps = steps.min(next - first);
        }
        if self.adam.borrow().options().learning_rate != rate {
            self.adam.borrow_mut().set_learning_rate(rate)?;
        }
        self.order.clear();
        for step in first..first + steps {
            let batch = self.batches.at(step);
            let own = match &self.team {
                Some(team) => team.share(batch),
                None => batch,
            };
            self.order.extend(own.iter().map(|&sample| sample as u32));
        }
        self.feed.load(&self.order)?;
        if let Some(team) = &self.team {
            team.order(&Order::Advance(steps))?;
        }
        for _ in 0..steps {
            self.run_step()?;
            self.check_capture()?;
        }
        let losses = self.feed.losses()?;
        let refused = self.adam.borrow().refusals()?.first;
        let done = match refused {
            Some(call) => (self.base + call as usize).saturating_sub(first).min(steps),
            None => steps,
        };
        self.history.step += done;
        self.history.losses.extend_from_slice(&losses[..done]);
        let seconds = start.elapsed().as_secs_f64();
        self.history.seconds += seconds;
        if done == steps {
            self.intervals.push(seconds * 1e3 / steps as f64);
            return Ok(&self.history.losses[first..]);
        }
        let step = self.history.step;
        Err(match losses[done] {
            loss if loss.is_finite() => Error::GradientNotFinite { step },
            loss => Error::Diverged {
                step,
                loss: loss.into(),
            },
        })
    }

    /// Runs a step. On a GPU it is launched only, but for the first and the one that is captured.
    fn run_step(&mut self) -> Result<(), Error> {
        let (step, device) = (&mut self.step, &self.device);
        let part = match step.captures_next() {
            true => Part::Capture,
            false if self.start.lacks(Part::FirstStep) => Part::FirstStep,
            false => return Ok(step.run()?),
        };
        self.start.part(part, || {
            step.run()?;
            Ok(device.synchronize()?)
        })
    }

    /// Checks that steps are captured, if the user insists on it.
    fn check_capture(&self) -> Result<(), Error> {
        match (self.steps.capture, self.step.fallback()) {
            (CaptureName::On, Some(reason)) => Err(Error::NotCaptured {
                reason: reason.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// The number of steps to the next validation, at least 1.
    fn until_validation(&self) -> usize {
        let (step, every) = (self.history.step, self.settings.val_every);
        let left = self.settings.steps.saturating_sub(step);
        (every - step % every).min(left).max(1)
    }

    /// The reason why steps on a GPU are not captured, if they could be.
    pub(super) fn fallback(&self) -> Option<&Fallback> {
        let reason = self.step.fallback()?;
        let expected = matches!(reason, Fallback::Cpu | Fallback::Off);
        (!expected).then_some(reason)
    }

    /// How the steps of this session ran.
    pub(super) fn captured(&self) -> Result<CapturedSteps, Error> {
        let steps = (self.steps, self.buffer_bytes);
        CapturedSteps::new(&self.step, &self.feed, steps, &self.intervals)
    }

    /// The times of the start.
    pub(super) fn start_seconds(&self) -> &StartSeconds {
        self.start.seconds()
    }

    /// The scale of the loss after the last step, and how often it fell, if there is one.
    pub(super) fn loss_scale(&self) -> Result<Option<LossScaleState>, Error> {
        let adam = self.adam.borrow();
        Ok(adam.loss_scale().map(LossScale::state).transpose()?)
    }

    /// Whether it is time for a validation that has not been done yet.
    pub(super) fn validation_is_due(&self) -> bool {
        let (step, last) = (self.history.step, self.history.validations.last());
        let at_step = step.is_multiple_of(self.settings.val_every) || step == self.settings.steps;
        step > 0 && at_step && last.is_none_or(|&(done, _)| done != step)
    }

    /// Measures the validation error. Returns `Some(true)` if it is the least so far, `None` if Ctrl-C came before the end.
    pub(super) fn validate(&mut self) -> Result<Option<bool>, Error> {
        let start = Instant::now();
        let (model, val, device) = (&self.model, &self.data.val, &self.device);
        let error = match self.start.lacks(Part::FirstValidation) {
            false => mean_squared_error(model, val, None, device),
            true => self.start.part(Part::FirstValidation, || {
                mean_squared_error(model, val, None, device)
            }),
        };
        let Some(error) = error? else {
            return Ok(None);
        };
        let step = self.history.step;
        self.history.validations.push((step, error));
        let least = self.history.best.is_none_or(|(_, best)| error < best);
        let improved = error.is_finite() && least;
        if improved {
            self.history.best = Some((step, error));
            for (name, var) in self.model.parameters().variables() {
                self.best.insert(name, var.copy()?);
            }
        }
        self.history.seconds += start.elapsed().as_secs_f64();
        Ok(Some(improved))
    }

    /// The error on the test set with the current weights; `None` if Ctrl-C came before the end.
    pub(super) fn test_error(&self) -> Result<Option<f64>, Error> {
        mean_squared_error(&self.model, &self.data.test, None, &self.device)
    }

    /// The error on the test set with the best weights; `None` if there are none, or if Ctrl-C came before the end.
    pub(super) fn best_test_error(&self) -> Result<Option<f64>, Error> {
        match self.best_model()? {
            None => Ok(None),
            Some(model) => mean_squared_error(&model, &self.data.test, None, &self.device),
        }
    }

    /// The errors of energies and forces on the test set with the current weights and with the best
    /// ones, and the errors of a prediction that knows nothing. There are none for a task without
    /// forces, or if Ctrl-C came before the end.
    pub(super) fn errors_of_forces(&self) -> Result<[Option<ForceErrors>; 3], Error> {
        let (task, test) = (self.settings.task(), &self.data.test);
        let measure = |model: &Model| ForceErrors::measure(task, model, test, (None, &self.device));
        let best = self.best_model()?;
        let best = best.map_or(Ok(None), |best| measure(&best))?;
        let trivial = ForceErrors::trivial(task, &self.data.train, test);
        Ok([measure(&self.model)?, best, trivial])
    }

    /// The model with the best weights, if there are any yet.
    fn best_model(&self) -> Result<Option<Model>, Error> {
        if self.best.is_empty() {
            return Ok(None);
        }
        let (architecture, options) = (self.settings.architecture(), self.settings.model());
        let model = Model::with_options(architecture, options, 0, DType::F32, &self.device)?;
        for (name, var) in model.parameters().variables() {
            if let Some(best) = self.best.get(&name) {
                var.set(best)?;
            }
        }
        Ok(Some(model))
    }

    /// Writes the best weights, if there are any yet, with the settings and the network.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn save_best(&self, path: &Path) -> Result<(), Error> {
        if self.best.is_empty() {
            return Ok(());
        }
        let mut checkpoint = Checkpoint::new();
        self.add_best("", &mut checkpoint);
        checkpoint.set_network(self.model.description()?);
        self.settings.store(&mut checkpoint)?;
        Ok(checkpoint.save(path)?)
    }

    /// Adds the best weights to a checkpoint, with the algebra and the norm of each layer.
    fn add_best(&self, prefix: &str, checkpoint: &mut Checkpoint) {
        for (name, tensor) in &self.best {
            checkpoint.insert(format!("{prefix}{name}"), tensor);
        }
        self.model.parameters().describe(prefix, checkpoint);
    }

    /// Writes the whole state.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<(), Error> {
        Ok(self.checkpoint()?.save(path)?)
    }

    /// The whole state. It shares the memory of the parameters.
    pub(super) fn checkpoint(&self) -> Result<Checkpoint, Error> {
        let mut checkpoint = Checkpoint::new();
        self.model.export(MODEL, &mut checkpoint);
        self.adam.borrow().export(OPTIMISER, &mut checkpoint)?;
        if !self.best.is_empty() {
            self.add_best(BEST, &mut checkpoint);
        }
        self.settings.store(&mut checkpoint)?;
        checkpoint.insert_text(HISTORY, serde_json::to_string(&self.history)?);
        let losses = Tensor::from_slice(&self.history.losses, self.history.step, &Device::Cpu)?;
        checkpoint.insert(LOSSES, &losses);
        Ok(checkpoint)
    }
}
