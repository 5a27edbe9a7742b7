//! The results of a run as data.

use flashcliff::Tier;
use flashcliff_tasks::Dataset;
use flashcliff_tasks::published::{self, ErrorUnits, PublishedResult};
use serde::Serialize;

use super::capture::CapturedSteps;
use super::forces::ForceErrors;
use super::session::Session;
use super::settings::Settings;
use super::start::StartSeconds;
use super::team::Team;
use crate::device::DeviceName;
use crate::error::Error;
use crate::interrupt;

/// Everything that is known about a finished run.
#[derive(Debug, Serialize)]
pub(super) struct Metrics {
    pub(super) program: Program,
    pub(super) settings: Settings,
    pub(super) parameters: usize,
    /// Standard deviation the targets were divided by; 1 when they were not.
    pub(super) target_scale: f32,
    /// Mean that was subtracted from the targets.
    pub(super) target_shift: f32,
    /// Mean squared errors of the targets as stored (standardised for regression).
    pub(super) errors: Errors,
    /// The mean squared errors in the units of the target itself.
    pub(super) errors_in_target_units: Errors,
    pub(super) published: Vec<Published>,
    /// Errors of energies and forces, for the task of forces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forces: Option<Forces>,
    pub(super) seconds: Seconds,
    /// The seconds of the parts of the start of the last session.
    start_seconds: StartSeconds,
    /// The time of training over the number of steps, with validations and start-up.
    pub(super) milliseconds_per_step: f64,
    /// How the steps of the last session were run.
    pub(super) steps: CapturedSteps,
    /// The scale of the loss, where gradients are f16.
    loss_scale: Option<LossScale>,
    pub(super) samples_per_second: f64,
    /// Mean squared error of the batch of every step.
    train_losses: Vec<f32>,
    /// Step and validation error.
    validations: Vec<(usize, f64)>,
}

/// The scale of the loss at the end of a run.
#[derive(Debug, Serialize)]
struct LossScale {
    scale: f64,
    /// The steps whose gradients overflowed, over all sessions. They changed no weight.
    skipped_steps: u64,
}

/// The program that made the results, and its machine.
#[derive(Debug, Serialize)]
pub(crate) struct Program {
    version: &'static str,
    rust_version: &'static str,
    architecture: &'static str,
    simd: &'static str,
    threads: usize,
    device: String,
    /// The number of GPUs that shared each batch, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<usize>,
}

impl Program {
    /// This program on a device, or on several.
    pub(crate) fn new(device: DeviceName, gpus: Option<usize>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            rust_version: env!("CARGO_PKG_RUST_VERSION"),
            architecture: std::env::consts::ARCH,
            simd: Tier::best().name(),
            threads: rayon::current_num_threads(),
            device: device.to_string(),
            gpus,
        }
    }
}

/// Mean squared errors.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Errors {
    /// The error on the validation set after the last step.
    pub(super) validation: f64,
    /// The error on the test set after the last step.
    pub(super) test: f64,
    /// The least error on the validation set.
    pub(super) best_validation: f64,
    /// The step after which the least error was measured.
    pub(super) best_step: usize,
    /// The error on the test set with the weights of that step.
    pub(super) best_test: f64,
}

/// Errors of energies and forces on the test set.
#[derive(Debug, Serialize)]
pub(super) struct Forces {
    /// The errors with the weights after the last step.
    pub(super) last: ForceErrors,
    /// The errors with the best weights.
    pub(super) best: ForceErrors,
    /// The errors of no force, and of the mean energy of the training set.
    pub(super) trivial: ForceErrors,
}

impl Forces {
    fn measure(session: &Session<'_>) -> Result<Option<Self>, Error> {
        let [last, best, trivial] = session.errors_of_forces()?;
        let own = last.zip(trivial);
        Ok(own.map(|(last, trivial)| Self {
            last,
            best: best.unwrap_or(last),
            trivial,
        }))
    }
}

/// Published errors of one method at the same budget.
#[derive(Debug, Serialize)]
pub(super) struct Published {
    pub(super) method: &'static str,
    pub(super) parameters: Option<usize>,
    /// `validation` or `test`: the set that the errors are on.
    pub(super) split: String,
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
    pub(super) trials: &'static [f64],
    /// `target` or `standardised`.
    pub(super) units: &'static str,
    pub(super) source: String,
    pub(super) note: Option<&'static str>,
}

/// The wall time of the parts of a run, in seconds.
#[derive(Debug, Serialize)]
pub(super) struct Seconds {
    /// The time of making the data.
    pub(super) data: f64,
    /// The time of steps and validations, over all sessions.
    pub(super) training: f64,
    /// The time of the errors on the test set.
    pub(super) test: f64,
}

impl Errors {
    /// The errors of a run whose last step is done; `None` if Ctrl-C came before the end.
    pub(super) fn measure(session: &Session<'_>) -> Result<Option<Self>, Error> {
        let history = session.history();
        let test = session.test_error()?;
        let best_test = session.best_test_error()?;
        let Some(test) = test.filter(|_| !interrupt::requested()) else {
            return Ok(None);
        };
        let (_, validation) = history.validations.last().copied().unwrap_or((0, f64::NAN));
        let (best_step, best_validation) = history.best.unwrap_or((0, f64::NAN));
        Ok(Some(Self {
            validation,
            test,
            best_validation,
            best_step,
            best_test: best_test.unwrap_or(test),
        }))
    }

    fn in_target_units(&self, data: &Dataset) -> Self {
        Self {
            validation: data.error_in_target_units(self.validation),
            test: data.error_in_target_units(self.test),
            best_validation: data.error_in_target_units(self.best_validation),
            best_step: self.best_step,
            best_test: data.error_in_target_units(self.best_test),
        }
    }
}

impl Published {
    fn new(result: &'static PublishedResult) -> Self {
        let (least, greatest) = result.range();
        let source = result.source;
        Self {
            method: result.method,
            parameters: result.parameters,
            split: result.split.to_string(),
            mean: result.error(),
            least,
            greatest,
            trials: result.trials,
            units: match result.units {
                ErrorUnits::Target => "target",
                ErrorUnits::Standardised => "standardised",
            },
            source: format!(
                "{}, arXiv {}; {} of {}",
                source.paper, source.arxiv, source.file, source.repository
            ),
            note: result.note,
        }
    }
}

impl Metrics {
    /// Gathers the results of a run.
    pub(super) fn new(
        session: &Session<'_>,
        data: &Dataset,
        device: DeviceName,
        errors: Errors,
        seconds: Seconds,
    ) -> Result<Self, Error> {
        let settings = session.settings();
        let history = session.history();
        let Settings {
            samples,
            steps,
            batch,
            ..
        } = *settings;
        let published = published::at_budget(settings.task(), samples, steps, batch);
        let per_step = seconds.training / history.step as f64;
        Ok(Self {
            program: Program::new(device, session.team().map(Team::size)),
            settings: settings.clone(),
            parameters: session.parameter_count(),
            target_scale: data.target_scale,
            target_shift: data.target_shift,
            errors_in_target_units: errors.in_target_units(data),
            errors,
            published: published.map(Published::new).collect(),
            forces: Forces::measure(session)?,
            milliseconds_per_step: per_step * 1e3,
            steps: session.captured()?,
            loss_scale: session.loss_scale()?.map(|state| LossScale {
                scale: state.scale,
                skipped_steps: state.skipped,
            }),
            samples_per_second: batch.min(samples) as f64 / per_step,
            seconds,
            start_seconds: session.start_seconds().clone(),
            train_losses: history.losses.clone(),
            validations: history.validations.clone(),
        })
    }
}
