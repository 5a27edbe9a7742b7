//! The parts of a training step: model, optimiser, and the error with its gradients.

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::layers::transformer::Draws;
use flashcliff_candle::models::Model;
use flashcliff_candle::objective::{Objective, ObjectiveOptions};
use flashcliff_candle::optim::Adam;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::settings::Settings;
use crate::error::Error;

/// The random stream of a seed that the seed of the weights comes from, so that weights and data
/// do not share numbers.
const WEIGHTS: u64 = 4 << 48;
/// The random stream that the seed of dropout comes from, on rank 0; the streams after it are for
/// the other ranks.
const DROPOUT: u64 = 5 << 48;

/// A model in training.
#[derive(Debug)]
pub(super) struct Trainer {
    pub(super) model: Model,
    pub(super) adam: Adam,
    pub(super) objective: Objective,
    /// The random numbers of dropout, if there is any.
    pub(super) draws: Option<Draws>,
}

impl Trainer {
    /// The parts of a run on one of several ranks, with gradient checkpointing or not. The memory of
    /// a plan is checked and taken here.
    ///
    /// # Errors
    /// The errors of the model and of its objective; [`flashcliff::Error::OutOfMemory`] among them.
    pub(super) fn new(
        settings: &Settings,
        (rank, ranks): (usize, usize),
        device: &Device,
        gradient_checkpointing: bool,
    ) -> Result<Self, Error> {
        let seed_of = |stream: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
            rng.set_stream(stream);
            rng.next_u64()
        };
        let (architecture, options) = (settings.architecture(), settings.model());
        let draws = options
            .dropout
            .map(|_| Draws::new(seed_of(DROPOUT + rank as u64), device));
        let draws = draws.transpose()?;
        let seed = seed_of(WEIGHTS);
        let model = Model::with_options(architecture, options, seed, DType::F32, device)?;
        let precision = settings.precision;
        let options = precision.scaled(settings.optimiser.options(settings.steps));
        let adam = Adam::new(model.parameters().variables(), options)?;
        let rows = settings.batch.min(settings.samples) / ranks;
        let parts = settings.optimiser.accumulate;
        let options = ObjectiveOptions {
            gradient_checkpointing,
            draws: draws.clone(),
            ..precision.objective(&adam)
        };
        Ok(Self {
            objective: Objective::with_options(&model, rows, parts, &options)?,
            model,
            adam,
            draws,
        })
    }

    /// One step on a batch. Returns the error.
    pub(super) fn step(&mut self, batch: &[Tensor]) -> Result<Tensor, flashcliff_candle::Error> {
        let loss = self.objective.evaluate(batch)?;
        self.adam.objective_step(&mut self.objective, &loss)?;
        Ok(loss)
    }
}
