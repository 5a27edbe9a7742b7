//! Weights in files, for commands that use what was trained.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use clap::Args;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::models::Model;
use flashcliff_tasks::{Dataset, Split};

use super::TaskName;
use super::evaluate::mean_squared_error;
use super::session::{HISTORY, MODEL};
use super::settings::Settings;
use crate::cli::from_one;
use crate::error::Error;

/// The data of a command, where they differ from the data of the run that made the weights.
#[derive(Args, Debug, Default)]
pub(crate) struct SamplesArgs {
    /// Training samples [default: as in the run, or as in `train`]. Targets of regression are standardised by them.
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    samples: Option<NonZero<usize>>,

    /// Validation samples [default: as in the run, or as in `train`].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    val_samples: Option<NonZero<usize>>,

    /// Test samples [default: as in the run, or as in `train`].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    test_samples: Option<NonZero<usize>>,

    /// Seed of the data [default: that of the run, or 0; nbody and nbody5d: 43].
    #[arg(long, value_name = "N")]
    data_seed: Option<u64>,
}

/// Weights of a task's network, as a file has them, and the settings of the run that made them.
#[derive(Debug)]
pub(crate) struct Trained {
    path: PathBuf,
    settings: Settings,
    checkpoint: Checkpoint,
    /// The weights are under this name and that of the parameter.
    prefix: &'static str,
}

impl Trained {
    /// Reads weights, or a state, whose weights are those after its last step. A file that says no settings has the usual ones of the task.
    ///
    /// # Errors
    /// A file that cannot be read or is corrupt; [`Error::WeightsOfTask`].
    pub(crate) fn read(task: TaskName, path: &Path) -> Result<Self, Error> {
        let checkpoint = Checkpoint::load(path)?;
        let task = task.task();
        let stored = Settings::stored(&checkpoint, path)?;
        let settings = stored.unwrap_or_else(|| Settings::usual(task));
        if settings.task() != task {
            return Err(Error::WeightsOfTask {
                path: path.to_owned(),
                expected: task,
                got: settings.task(),
            });
        }
        let prefix = match checkpoint.text(HISTORY) {
            Some(_) => MODEL,
            None => "",
        };
        Ok(Self {
            path: path.to_owned(),
            settings,
            checkpoint,
            prefix,
        })
    }

    /// The network with the weights in a type, on a device. Its products round as the products of the run did.
    ///
    /// # Errors
    /// [`Error::Weights`], [`Error::UnexpectedWeight`].
    pub(crate) fn model(&self, dtype: DType, device: &Device) -> Result<Model, Error> {
        self.settings.precision.set();
        let (architecture, options) = (self.settings.architecture(), self.settings.model());
        let stored = Model::with_options(architecture, options, 0, DType::F32, device)?;
        self.check_names(&stored)?;
        let fits = stored.import(self.prefix, &self.checkpoint);
        fits.map_err(|source| Error::Weights {
            path: self.path.clone(),
            task: self.settings.task(),
            source: Box::new(source),
        })?;
        if dtype == DType::F32 {
            return Ok(stored);
        }
        let model = Model::with_options(architecture, options, 0, dtype, device)?;
        let pairs = model.parameters().variables().into_iter();
        for ((_, var), (_, weight)) in pairs.zip(stored.parameters().variables()) {
            var.set(&weight.to_dtype(dtype)?)?;
        }
        Ok(model)
    }

    /// Checks that all weights of the file are of the network.
    fn check_names(&self, model: &Model) -> Result<(), Error> {
        let parameters = model.parameters();
        let own = |name: &&String| name.starts_with(self.prefix);
        let mut names = self.checkpoint.tensors().keys().filter(own);
        let unknown = |name: &&String| parameters.get(&name[self.prefix.len()..]).is_none();
        match names.find(unknown) {
            None => Ok(()),
            Some(tensor) => Err(Error::UnexpectedWeight {
                path: self.path.clone(),
                task: self.settings.task(),
                tensor: tensor.clone(),
            }),
        }
    }

    /// The data of the run, or others that a command line names.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; the errors of the task.
    pub(crate) fn data(&self, args: &SamplesArgs) -> Result<Dataset, Error> {
        let own = &self.settings;
        let or = |given: Option<NonZero<usize>>, own| given.map_or(own, usize::from);
        let mut settings = own.clone();
        settings.samples = or(args.samples, own.samples);
        settings.val_samples = or(args.val_samples, own.val_samples);
        settings.test_samples = or(args.test_samples, own.test_samples);
        settings.check()?;
        let seed = self.data_seed(args.data_seed);
        Ok(settings.task().generate(settings.sizes(), seed)?)
    }

    /// The seed of the data, unless another is asked for.
    pub(crate) fn data_seed(&self, other: Option<u64>) -> u64 {
        other.unwrap_or_else(|| self.settings.data_seed())
    }
}

impl SamplesArgs {
    /// The seed that is asked for.
    pub(crate) fn data_seed(&self) -> Option<u64> {
        self.data_seed
    }
}

/// The mean squared error of the stored targets of a split, as `train` measures it: of so many samples at once, or of as many as there.
///
/// # Errors
/// [`Error::Stopped`]; the errors of candle.
pub(crate) fn error_on(
    model: &Model,
    split: &Split,
    batch: Option<usize>,
    device: &Device,
) -> Result<f64, Error> {
    mean_squared_error(model, split, batch, device)?.ok_or(Error::Stopped)
}
