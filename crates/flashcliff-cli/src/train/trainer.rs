//! The parts of a training step: model, optimiser, and the error with its gradients.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::layers::transformer::Draws;
use flashcliff_candle::models::Model;
use flashcliff_candle::objective::{Objective, ObjectiveOptions};
use flashcliff_candle::optim::Adam;

use super::settings::Settings;
use crate::error::Error;

/// A model in training.
#[derive(Debug)]
pub(super) struct Trainer {
    pub(super) model: Model,
    pub(super) adam: Adam,
    pub(super) objective: Objective,
}

impl Trainer {
    /// The parts for batches of so many rows, with weights of a seed, on a device, with gradient checkpointing or not, and with the random numbers of
    /// dropout.
    ///
    /// # Errors
    /// The errors of the model and of its objective.
    pub(super) fn new(
        settings: &Settings,
        seed: u64,
        rows: usize,
        device: &Device,
        gradient_checkpointing: bool,
        draws: Option<Draws>,
    ) -> Result<Self, Error> {
        let (architecture, options) = (settings.architecture(), settings.model());
        let model = Model::with_options(architecture, options, seed, DType::F32, device)?;
        let precision = settings.precision;
        let options = precision.scaled(settings.optimiser.options(settings.steps));
        let adam = Adam::new(model.parameters().variables(), options)?;
        let parts = settings.optimiser.accumulate;
        let options = ObjectiveOptions {
            gradient_checkpointing,
            draws,
            ..precision.objective(&adam)
        };
        let objective = Objective::with_options(&model, rows, parts, &options)?;
        Ok(Self {
            model,
            adam,
            objective,
        })
    }

    /// One step on a batch. Returns the error.
    ///
    /// # Errors
    /// The errors of candle.
    pub(super) fn step(&mut self, batch: &[Tensor]) -> Result<Tensor, flashcliff_candle::Error> {
        let loss = self.objective.evaluate(batch)?;
        self.adam.objective_step(&mut self.objective, &loss)?;
        Ok(loss)
    }
}
