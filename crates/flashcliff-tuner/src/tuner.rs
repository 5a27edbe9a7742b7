//! Tunes one workload after the other, and keeps the choices that were found.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::tuning::{self, Measured, Place, Table, WatchedDevice};
use flashcliff::cuda::{Device, MatmulPrecision};
use flashcliff::{Dims, Dtype, Operator, Pass};

use crate::Error;
use crate::call::{Call, Numbers};
use crate::clock::Clock;
use crate::search::{Effort, Expected, Gate, Times, Tolerance, Wrong, unit};
use crate::session::{Choice, Part, Session, Subject, Tools, Trial};

/// How often inputs are moved to measure the effect of rounded operands.
const MOVES: u64 = 2;

/// The settings of a tuner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The largest number of algorithms that are tried for a matrix product.
    pub candidates: usize,
    /// How long candidates are measured.
    pub effort: Effort,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            candidates: 32,
            effort: Effort::default(),
        }
    }
}

/// An operator at some sizes, to be tuned.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The operator.
    pub operator: Operator,
    /// The sizes of the operator.
    pub dims: Dims,
    /// The type of all tensors.
    pub dtype: Dtype,
    /// The rounding of matrix products.
    pub precision: MatmulPrecision,
}

/// The times of a pass before and after a search, taken in turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassTimes {
    /// The pass.
    pub pass: Pass,
    /// The floating-point operations of the pass.
    pub flops: usize,
    /// The times with the choices that were in use before.
    pub before: Times,
    /// The times with the choices that were found.
    pub after: Times,
}

/// The result of tuning a workload.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The passes.
    pub passes: Vec<PassTimes>,
    /// The number of choices of the workload: matrix products of cuBLASLt, and knobs.
    pub choices: usize,
    /// How many of these choices changed.
    pub changed: usize,
    /// Whether the observer stopped the search. Choices that were accepted before are kept.
    pub interrupted: bool,
}

/// The files of a tuner that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The file with the choices.
    pub path: PathBuf,
    /// The new path of a broken file that was there before.
    pub broken: Option<PathBuf>,
}

/// Finds faster choices on a GPU. The tuner works on a separate device with the same context, so other devices keep
/// their choices.
pub struct Tuner {
    watched: WatchedDevice,
    /// A device without tuning tables.
    pub(crate) plain: Device,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) clock: Clock,
    settings: Settings,
    found: Table,
}

impl Tuner {
    /// A tuner that starts with the choices from the tables of a device.
    ///
    /// # Errors
    /// [`Cuda`](flashcliff::Error::Cuda), also if there is no memory to overwrite the caches with.
    pub fn new(device: &Device, settings: Settings) -> Result<Self, Error> {
        let stream = device.new_stream()?;
        Ok(Self {
            watched: WatchedDevice::new(device)?,
            plain: device.with_tuning(Place::none())?,
            clock: Clock::new(&stream)?,
            stream,
            settings,
            found: Table::new(device.tuning().gpu().clone()),
        })
    }

    /// The choices that were found so far.
    pub fn found(&self) -> &Table {
        &self.found
    }

    /// Checks before a search that [`Self::save`] will have a place to write to. Makes the folder of that place.
    ///
    /// # Errors
    /// [`TuningFile`](flashcliff::Error::TuningFile).
    pub fn check_save(&self) -> Result<(), Error> {
        let checked = tuning::check_save(&self.path()?, self.found.gpu());
        Ok(checked.map_err(flashcliff::Error::from)?)
    }

    /// The path of the user's file for the GPU.
    fn path(&self) -> Result<PathBuf, flashcliff::Error> {
        let place = self.watched.device().tuning().place();
        Ok(place.needed_file(self.found.gpu())?)
    }

    /// Adds the choices that were found to the user's file for the GPU. Devices that are opened later read it.
    ///
    /// # Errors
    /// [`TuningFile`](flashcliff::Error::TuningFile).
    pub fn save(&self) -> Result<Saved, Error> {
        let path = self.path()?;
        let broken = tuning::save(&path, &self.found).map_err(flashcliff::Error::from)?;
        Ok(Saved { path, broken })
    }

    /// Searches for faster choices for both passes of a workload. The observer is called for every candidate and may
    /// stop the search. Later workloads use the choices that were found.
    ///
    /// # Errors
    /// The errors of [`Operator::on_cuda`] and [`cuda::Operator::forward`](flashcliff::cuda::Operator::forward);
    /// [`Error::Reference`] if the choices in use give wrong results; [`Cuda`](flashcliff::Error::Cuda) if the GPU has no
    /// memory for the tensors in `f64`.
    pub fn tune(
        &mut self,
        workload: &Workload,
        observer: &mut dyn FnMut(&Trial) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        let device = self.watched.device();
        fits(workload, device.total_memory()?)?;
        let gate = self.gate(workload)?;
        let Workload {
            dims,
            dtype,
            precision,
            ..
        } = *workload;
        let numbers = Numbers::random(workload);
        let types = (dtype, precision);
        let mut call = Call::new(device, &self.stream, workload, types, &numbers)?;
        drop(numbers);
        gate.check(&call.results()?)
            .map_err(|reason| wrong(workload, reason))?;
        let tools = Tools {
            watched: &self.watched,
            clock: &mut self.clock,
            gate: &gate,
            candidates: self.settings.candidates,
        };
        let effort = self.settings.effort;
        let mut session = Session::new(workload, call, tools, observer);
        let searched = session.search(&effort);
        // Choices that were accepted are right and faster, even if an error ended the search.
        let (mut changed, choices) = (0, session.parts().len());
        for part in session.parts() {
            changed += usize::from(keep(&mut self.found, part));
        }
        let interrupted = searched?.is_break();
        let cost = workload.operator.cost(&dims);
        let passes = [
            (Pass::Forward, cost.forward),
            (Pass::Backward, cost.backward),
        ];
        let passes = passes.map(|(pass, flops)| {
            let [before, after] = session.pass_times(pass, effort.confirming_rounds)?;
            Ok(PassTimes {
                pass,
                flops,
                before,
                after,
            })
        });
        Ok(Outcome {
            passes: passes.into_iter().collect::<Result<_, Error>>()?,
            choices,
            changed,
            interrupted,
        })
    }

    /// The right results of a workload, with the errors of the choices without any tuning table.
    fn gate(&self, workload: &Workload) -> Result<Gate, Error> {
        let Workload {
            operator,
            dims,
            dtype,
            precision,
        } = workload;
        let numbers = Numbers::random(workload);
        let results = |types, numbers: &Numbers| {
            Call::new(&self.plain, &self.stream, workload, types, numbers)?.results()
        };
        let exact = (Dtype::F64, MatmulPrecision::Highest);
        let grads = operator
            .inputs()
            .iter()
            .map(|input| format!("grad_{}", input.name));
        let names = [operator.output().name.to_owned()].into_iter().chain(grads);
        let expected = names.zip(results(exact, &numbers)?);
        let expected = expected.map(|(name, values)| Expected::new(name, values));
        // Sums run over all blades and channels, or over all blades and the batch.
        let blades = operator.algebra().blade_count() * operator.algebra().grade_count();
        let tolerance = Tolerance {
            dtype: *dtype,
            terms: blades * dims.in_channels.max(dims.out_channels).max(dims.batch),
        };
        let mut gate = Gate::new(expected.collect(), tolerance);
        let unit = operand_unit(*dtype, *precision);
        for seed in 0..MOVES {
            gate.widen(&results(exact, &numbers.moved(unit, 3 + seed))?);
        }
        let first = results((*dtype, *precision), &numbers)?;
        gate.set_first(&first)
            .map_err(|reason| wrong(workload, reason))?;
        Ok(gate)
    }
}

/// Checks that a call in f64 fits the memory of the GPU. The host has copies of its tensors too.
fn fits(workload: &Workload, memory: usize) -> Result<(), flashcliff::Error> {
    let Workload { operator, dims, .. } = workload;
    let inputs = operator.inputs().iter().map(|spec| spec.shape(dims));
    let shapes = inputs.chain([operator.output_shape(dims)]);
    let bytes = |shape: Vec<usize>| {
        let numbers = shape.into_iter().try_fold(2, usize::checked_mul)?;
        numbers.checked_mul(Dtype::F64.bytes())
    };
    // The gradients take as much.
    let mut bytes = shapes.map(bytes);
    let all = bytes.try_fold(0_usize, |sum, bytes| sum.checked_add(bytes?));
    if all.is_some_and(|all| all <= memory) {
        return Ok(());
    }
    let got = all.map_or("more than can be counted".to_owned(), |all| all.to_string());
    Err(flashcliff::Error::Cuda {
        call: "cuMemAlloc",
        name: "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
        description: format!("expected tensors of at most {memory} bytes in f64, got {got}"),
    })
}

fn wrong(workload: &Workload, reason: Wrong) -> Error {
    Error::Reference {
        operator: workload.operator.name().to_owned(),
        reason,
    }
}

/// The relative error to which products may round their operands; tensor cores may cut digits off. For operands that
/// are not rounded it is some units, since steep functions come before and after the products.
fn operand_unit(dtype: Dtype, precision: MatmulPrecision) -> f64 {
    match (dtype, precision) {
        (Dtype::F32, MatmulPrecision::Bf16) => 2.0 * unit(Dtype::Bf16),
        (Dtype::F32, MatmulPrecision::Tf32 | MatmulPrecision::F16) => 2.0 * unit(Dtype::F16),
        (Dtype::F32 | Dtype::F64, _) => 4.0 * unit(dtype),
        _ => unit(dtype),
    }
}

/// Puts a choice into a table if it differs from the former choice.
fn keep(table: &mut Table, part: &Part) -> bool {
    if part.choice == part.before {
        return false;
    }
    match (&part.subject, part.choice) {
        (Subject::Product(problem), Choice::Algorithm(algorithm)) => {
            let microseconds = |times: Times| (times.median * 1e8).round() / 100.0;
            let measured = part.measured.map(|[before, after]| Measured {
                microseconds: microseconds(after),
                before_microseconds: microseconds(before),
            });
            table.set_algorithm(*problem, algorithm, measured);
        }
        (Subject::Knob { key, name }, Choice::Value(value)) => {
            table.set_knob(key.clone(), name.clone(), value);
        }
        // A part only has choices of its kind.
        _ => return false,
    }
    true
}
