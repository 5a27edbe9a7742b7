//! Steps of a task with its usual settings on made-up data, to be timed: nothing is kept of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use candle_core::{Device, Tensor};
use flashcliff_candle::capture::{Capture, Feed, Step};
use flashcliff_candle::timeline::{self, Sampler, Timeline};
use flashcliff_floor::values;

use super::precision::PrecisionName;
use super::settings::Settings;
use super::trainer::Trainer;
use super::{TaskName, optimiser};
use crate::device::DeviceName;
use crate::error::Error;

/// The task whose steps are rehearsed, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) task: TaskName,
    /// The samples of a step; the usual number if absent.
    pub(crate) batch: Option<usize>,
    pub(crate) precision: PrecisionName,
}

/// A model in training on made-up data, on a device.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    settings: Settings,
    device: Device,
    feed: Feed,
    trainer: Rc<RefCell<Trainer>>,
}

impl Play {
    /// The settings of a run.
    ///
    /// # Errors
    /// A batch out of range; a precision that the device or the network does not have; steps that do not fit in memory.
    fn settings(&self, device: DeviceName) -> Result<Settings, Error> {
        let mut settings = Settings::usual(self.task.task());
        settings.batch = self.batch.unwrap_or(settings.batch);
        settings.samples = settings.batch;
        settings.precision = self.precision;
        settings.check()?;
        settings.check_memory(false)?;
        let network = settings.architecture();
        settings.precision.check(device, network)?;
        Ok(settings)
    }

    /// The samples of a step.
    pub(crate) fn batch(&self) -> usize {
        let usual = || Settings::usual(self.task.task()).batch;
        self.batch.unwrap_or_else(usual)
    }

    /// The name of the precision.
    pub(crate) fn precision(&self) -> String {
        optimiser::name(self.precision)
    }
}

impl Rehearsal {
    /// The most steps that are launched without a look at the clock.
    pub(crate) const ROW: usize = 32;

    /// Makes model and data.
    pub(crate) fn new(play: Play, name: DeviceName, device: &Device) -> Result<Self, Error> {
        let settings = play.settings(name)?;
        settings.precision.set();
        let task = settings.task();
        let rows = settings.batch;
        let trainer = Trainer::new(&settings, (0, 1), device, false)?;
        let made = |shape: &[usize], seed| {
            let values = values(shape.iter().product(), seed);
            Tensor::from_vec(values, shape, device)
        };
        let points = made(&[rows, task.points(), task.dim()], 1)?;
        let targets = match task.target_len() {
            1 => made(&[rows], 2)?,
            len => made(&[rows, len], 2)?,
        };
        Ok(Self {
            feed: Feed::new(vec![points, targets], rows, Self::ROW)?,
            trainer: Rc::new(RefCell::new(trainer)),
            device: device.clone(),
            settings,
        })
    }

    /// The device of the steps.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// A step of the model, captured or not.
    pub(crate) fn step(&self, capture: Capture) -> Step<'static> {
        let trainer = self.trainer.clone();
        let work = move |batch: &[Tensor]| trainer.borrow_mut().step(batch);
        Step::new(&self.feed, capture, work)
    }

    /// Whether steps go through buffers that were taken once, without candle's graph.
    pub(crate) fn is_planned(&self) -> bool {
        self.trainer.borrow().objective.is_planned()
    }

    /// Gives the samples of the next steps.
    fn load(&self, steps: usize) -> Result<(), Error> {
        let order: Vec<u32> = (0..steps)
            .flat_map(|_| 0..self.settings.batch as u32)
            .collect();
        Ok(self.feed.load(&order)?)
    }

    /// Runs so many steps in a row, at most [`Self::ROW`], and waits for the last. Returns the seconds of one.
    pub(crate) fn time(&self, step: &mut Step<'_>, steps: usize) -> Result<f64, Error> {
        let steps = steps.clamp(1, Self::ROW);
        self.load(steps)?;
        self.device.synchronize()?;
        let start = Instant::now();
        for _ in 0..steps {
            step.run()?;
        }
        self.device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / steps as f64)
    }

    /// Runs one step, with the marks of a sampler's next window or with none.
    pub(crate) fn sample(
        &self,
        step: &mut Step<'_>,
        sampler: &mut Sampler,
        with_marks: bool,
    ) -> Result<(), Error> {
        self.load(1)?;
        let done = match with_marks {
            true => sampler.sample(|| step.run())?,
            false => sampler.plain(|| step.run())?,
        };
        Ok(done?)
    }

    /// Runs one step, and records its operations.
    pub(crate) fn record(&self, step: &mut Step<'_>) -> Result<Timeline, Error> {
        self.load(1)?;
        let (done, timeline) = timeline::record(&self.device, || step.run())?;
        done?;
        Ok(timeline)
    }
}
