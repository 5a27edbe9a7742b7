//! Progress bars, or notes if there is no terminal for them.

use std::ops::ControlFlow;

use flashcliff_tasks::{Dataset, Sizes, Task, TaskError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::info;

use super::session::{History, Session};
use crate::output::grouped;

/// Makes the bars.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bars {
    quiet: bool,
}

/// The bar of a training run.
#[derive(Debug)]
pub(super) struct TrainingBar {
    bar: ProgressBar,
    steps: usize,
    batch: usize,
    validation: Option<f64>,
}

impl Bars {
    /// Bars that are not drawn if `quiet`, or without a terminal.
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Makes the data of a task, unless it is told to stop first.
    pub(super) fn generate(
        &self,
        task: Task,
        sizes: Sizes,
        seed: u64,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Dataset, TaskError> {
        let bar = self.bar(
            sizes.total(),
            "data     {bar:32} {pos}/{len} samples, {eta} left",
        );
        let data = task.generate_observed(sizes, seed, &|samples| {
            bar.inc(samples as u64);
            match stop() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish_and_clear();
        data
    }

    /// The bar of a run, at the step it has reached.
    pub(super) fn training(&self, session: &Session<'_>) -> TrainingBar {
        let settings = session.settings();
        let template = "training {bar:32} {pos}/{len} steps, {eta} left{msg}";
        let bar = self.bar(settings.steps, template);
        bar.set_position(session.history().step as u64);
        bar.reset_eta();
        TrainingBar {
            bar,
            steps: settings.steps,
            batch: settings.batch.min(settings.samples),
            validation: session.history().validations.last().map(|v| v.1),
        }
    }

    fn bar(&self, len: usize, template: &str) -> ProgressBar {
        let target = match self.quiet {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(Some(len as u64), target);
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

impl TrainingBar {
    /// Records that some steps are done, by their losses.
    pub(super) fn steps(&self, losses: &[f32]) {
        self.bar.inc(losses.len() as u64);
        let Some(loss) = losses.last().filter(|_| !self.bar.is_hidden()) else {
            return;
        };
        let validation = self
            .validation
            .map_or(String::new(), |v| format!(", validation {v:.4}"));
        let speed = grouped((self.bar.per_sec() * self.batch as f64) as usize);
        self.bar
            .set_message(format!(", loss {loss:.4}{validation}, {speed} samples/s"));
    }

    /// Records that the validation error was measured.
    pub(super) fn validated(&mut self, history: &History) {
        let Some(&(step, error)) = history.validations.last() else {
            return;
        };
        self.validation = Some(error);
        if self.bar.is_hidden() {
            let loss = history.losses.last().copied().unwrap_or(f32::NAN);
            info!(
                "step {step} of {}: loss {loss:.4}, validation {error:.4}",
                self.steps
            );
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
