//! `flashcliff eval`: the errors of trained weights on the data of their task.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;

use candle_core::DType;
use clap::{Args, ValueEnum};
use flashcliff_tasks::{Dataset, Split, SplitName};
use serde::Serialize;

use crate::cli::from_one;
use crate::device::DeviceArgs;
use crate::error::Error;
use crate::output::{self, Align, Overwrite, Table, grouped, print};
use crate::shell;
use crate::train::{
    ForceErrors, Program, SamplesArgs, TaskName, Trained, error_on, number, table_of_forces,
};

/// Measure the errors of trained weights on the data of their task.
#[derive(Debug, Args)]
#[command(after_help = "\
WEIGHTS is a file of `train`: best.safetensors, or state.safetensors, which has the weights after the last step; or a file of another
program with the names of CGENN's or GATr's state dict. Files of `train` say the settings of their run: the data are the same, and so are
the errors, digit by digit, on the same device and SIMD tier. Files without settings get the data that `train` has without options.
Weights that are missing, that the network does not have, or that have another shape, type, algebra or norm are refused.")]
pub(crate) struct EvalArgs {
    /// Task of the weights.
    task: TaskName,

    /// File of the weights.
    weights: PathBuf,

    /// Samples to measure; may be repeated [default: val and test].
    #[arg(long, value_name = "SPLIT")]
    split: Vec<Part>,

    #[command(flatten)]
    samples: SamplesArgs,

    /// Samples that are computed at once [default: as many as in `train`].
    #[arg(long, value_name = "N", value_parser = from_one::<NonZero<usize>>)]
    batch: Option<NonZero<usize>>,

    #[command(flatten)]
    device: DeviceArgs,

    /// Also write the errors to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,
}

/// A split on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Samples that the network learnt from.
    Train,
    /// Samples that chose the best weights.
    Val,
    /// Samples that nothing was chosen by.
    Test,
}

impl Part {
    fn name(self) -> SplitName {
        match self {
            Self::Train => SplitName::Train,
            Self::Val => SplitName::Validation,
            Self::Test => SplitName::Test,
        }
    }

    fn of(self, data: &Dataset) -> &Split {
        match self {
            Self::Train => &data.train,
            Self::Val => &data.val,
            Self::Test => &data.test,
        }
    }
}

/// The errors, by the names of `metrics.json`.
#[derive(Debug, Serialize)]
struct Report {
    program: Program,
    task: &'static str,
    #[serde(serialize_with = "output::path")]
    weights: PathBuf,
    parameters: usize,
    data_seed: u64,
    /// The numbers of samples.
    samples: BTreeMap<String, usize>,
    target_scale: f32,
    target_shift: f32,
    /// Mean squared errors of the targets as stored (standardised for regression).
    errors: BTreeMap<String, f64>,
    /// The mean squared errors in the units of the target itself.
    errors_in_target_units: BTreeMap<String, f64>,
    /// The errors of energies and forces of a task that has them, and the errors of no force and
    /// the mean energy of the training set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    forces: BTreeMap<String, [ForceErrors; 2]>,
}

/// Runs the command.
///
/// # Errors
/// Weights that cannot be read or do not fit the network, a file that cannot be written, the errors of the task and the device.
pub(crate) fn run(args: &EvalArgs) -> Result<(), Error> {
    let create = |path| args.overwrite.create(path);
    let json = args.json.as_deref().map(create).transpose()?;
    let report = Report::measure(args)?;
    if let Some(file) = json {
        file.commit(output::json(&report)?.as_bytes())?;
    }
    print(&report.text())
}

impl Report {
    fn measure(args: &EvalArgs) -> Result<Self, Error> {
        let trained = Trained::read(args.task, &args.weights)?;
        let device = args.device.open()?;
        let model = trained.model(DType::F32, &device)?;
        let data = trained.data(&args.samples)?;
        let mut report = Self {
            program: Program::new(args.device.name(), None),
            task: args.task.task().name(),
            weights: args.weights.clone(),
            parameters: model.parameters().element_count(),
            data_seed: trained.data_seed(args.samples.data_seed()),
            samples: BTreeMap::new(),
            target_scale: data.target_scale,
            target_shift: data.target_shift,
            errors: BTreeMap::new(),
            errors_in_target_units: BTreeMap::new(),
            forces: BTreeMap::new(),
        };
        let parts = match args.split.is_empty() {
            true => &[Part::Val, Part::Test],
            false => &args.split[..],
        };
        for part in parts {
            let (name, split) = (part.name().to_string(), part.of(&data));
            let batch = args.batch.map(usize::from);
            let error = error_on(&model, split, batch, &device)?;
            let raw = data.error_in_target_units(error);
            report.samples.insert(name.clone(), split.len());
            report.errors_in_target_units.insert(name.clone(), raw);
            let task = args.task.task();
            let forces = ForceErrors::measure(task, &model, split, (batch, &device))?;
            let trivial = ForceErrors::trivial(task, &data.train, split);
            if let (Some(own), Some(trivial)) = (forces, trivial) {
                report.forces.insert(name.clone(), [own, trivial]);
            }
            report.errors.insert(name, error);
        }
        Ok(report)
    }

    fn text(&self) -> String {
        let standardised = self.target_scale != 1.0;
        let mut columns = vec![
            ("split", Align::Left),
            ("samples", Align::Right),
            ("MSE", Align::Right),
        ];
        if standardised {
            columns.push(("in the target's own units", Align::Right));
        }
        let mut table = Table::new(&columns);
        for name in [SplitName::Train, SplitName::Validation, SplitName::Test] {
            let name = name.to_string();
            let Some(&error) = self.errors.get(&name) else {
                continue;
            };
            let raw = self.errors_in_target_units.get(&name);
            let raw = raw.filter(|_| standardised).map(|&raw| number(raw));
            let samples = grouped(self.samples[&name]);
            table.row([name, samples, number(error)].into_iter().chain(raw));
        }
        let forces = self.forces.iter().flat_map(|(name, &[own, trivial])| {
            let without = format!("{name}, no force and mean energy");
            [(name.clone(), own), (without, trivial)]
        });
        let forces = match table_of_forces("split", forces) {
            empty if empty.is_empty() => empty,
            table => format!("\n{table}"),
        };
        format!(
            "{}: {}, {} parameters, data of seed {}; mean squared error{}\n\n{}{forces}",
            self.task,
            shell::word(&self.weights),
            grouped(self.parameters),
            self.data_seed,
            match standardised {
                true => " of the standardised target",
                false => "",
            },
            table.render()
        )
    }
}
