//! A case with its tensors, which can run.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use flashcliff::{Algebra, Dtype, Pass};
use flashcliff_candle::init::Parameters;
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::{Features, Objective, ObjectiveOptions};
use flashcliff_candle::optim::{Adam, AdamOptions, LossScaleOptions};
use flashcliff_candle::timeline::{self, Operation};

use super::cases::{NetworkCase, Run, What};
use super::layers::{Apply, Other, Size, numbers, put};
use crate::error::Error;

/// The seed of parameters.
const SEED: u64 = 1;

/// A case with its tensors.
pub(super) enum Work {
    Layer(LayerWork),
    Inference(Box<Model>, Tensor),
    Step(Box<Training>),
}

/// A layer with its inputs.
pub(super) struct LayerWork {
    parameters: Parameters,
    apply: Apply,
    /// The input whose gradient is taken, and others.
    x: Var,
    others: Vec<Other>,
    /// Whether gradients are computed.
    is_both: bool,
}

/// A model in training.
pub(super) struct Training {
    pub(super) model: Model,
    pub(super) adam: Adam,
    pub(super) objective: Objective,
    pub(super) batch: [Tensor; 2],
}

/// The first scale of the loss for gradients of f16. No gradient of a case overflows with it, so that no step is skipped.
const LOSS_SCALE: f64 = 1024.0;

impl Training {
    /// A model in training with features of a type.
    pub(super) fn new(model: Model, batch: [Tensor; 2], features: Features) -> Result<Self, Error> {
        let scale = LossScaleOptions {
            initial: LOSS_SCALE,
            ..LossScaleOptions::default()
        };
        let options = AdamOptions {
            loss_scale: (features == Features::F16).then_some(scale),
            ..AdamOptions::default()
        };
        let adam = Adam::new(model.parameters().variables(), options)?;
        let options = ObjectiveOptions {
            features,
            loss_scale: adam.loss_scale().cloned(),
            ..ObjectiveOptions::default()
        };
        let rows = batch[0].dims()[0];
        Ok(Self {
            objective: Objective::with_options(&model, rows, 1, &options)?,
            adam,
            batch,
            model,
        })
    }

    /// The factor of all gradients.
    pub(super) fn loss_scale(&self) -> Result<f64, Error> {
        Ok(match self.objective.loss_scale() {
            Some(scale) => scale.state()?.scale,
            None => 1.0,
        })
    }

    /// One step. Returns the loss before it.
    pub(super) fn step(&mut self) -> Result<Tensor, Error> {
        let loss = self.objective.evaluate_in_place(&self.batch)?;
        self.adam.objective_step(&mut self.objective, &loss)?;
        Ok(loss)
    }
}

/// candle's name of a type.
fn candle_type(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F64 => DType::F64,
        Dtype::Bf16 => DType::BF16,
        Dtype::F16 => DType::F16,
        _ => DType::F32,
    }
}

/// The type of the numbers that a case is compared with, on the CPU: f64. A case that has it there itself is compared with f32.
pub(super) fn other_type(case: &NetworkCase, device: &Device) -> DType {
    match (case.dtype, device) {
        (Dtype::F64, Device::Cpu) => DType::F32,
        _ => DType::F64,
    }
}

/// Points of samples and their targets.
fn batch(
    architecture: Architecture,
    samples: usize,
    dtype: DType,
    device: &Device,
) -> Result<[Tensor; 2], Error> {
    let [points, targets] = architecture.shapes(samples);
    Ok([
        put(numbers(&points, 1), &points, dtype, device)?,
        put(numbers(&targets, 2), &targets, dtype, device)?,
    ])
}

impl Work {
    /// A case.
    pub(super) fn new(case: &NetworkCase, device: &Device) -> Result<Self, Error> {
        let features = match (case.what, case.dtype) {
            (What::Network(_), Dtype::Bf16) => Features::Bf16,
            (What::Network(_), Dtype::F16) => Features::F16,
            _ => Features::Model,
        };
        Self::of(case, candle_type(case.parameter_type()), features, device)
    }

    /// The same case in another type on the CPU, with the parameters and inputs of this one. Training steps go through candle's graph.
    pub(super) fn reference(&self, case: &NetworkCase, dtype: DType) -> Result<Self, Error> {
        let mut reference = Self::of(case, dtype, Features::Model, &Device::Cpu)?;
        let same = |from: &Tensor| from.to_device(&Device::Cpu)?.to_dtype(dtype);
        if let (Self::Layer(own), Self::Layer(reference)) = (self, &mut reference) {
            reference.x.set(&same(&own.x)?)?;
            for (own, other) in own.others.iter().zip(&mut reference.others) {
                match other {
                    Other::Fixed(tensor) => *tensor = same(own.tensor())?,
                    Other::Varied(_, var) => var.set(&same(own.tensor())?)?,
                }
            }
        }
        if let Self::Step(training) = &mut reference {
            training.objective = Objective::through_graph(&training.model, case.batch, 1)?;
        }
        let own = self.parameters().variables();
        for ((_, to), (_, from)) in reference.parameters().variables().iter().zip(&own) {
            to.set(&same(from)?)?;
        }
        Ok(reference)
    }

    fn of(
        case: &NetworkCase,
        dtype: DType,
        features: Features,
        device: &Device,
    ) -> Result<Self, Error> {
        match case.what {
            What::Layer(layer) => {
                let size = Size {
                    algebra: Algebra::new(case.signature)?,
                    batch: case.batch,
                    channels: case.channels,
                };
                let parameters = Parameters::seeded(SEED);
                let apply = layer.make(&size, parameters.builder(dtype, device))?;
                let x = Var::from_tensor(&layer.first(&size, dtype, device)?)?;
                Ok(Self::Layer(LayerWork {
                    others: layer.others(&size, &x)?,
                    is_both: case.run == Run::Both,
                    parameters,
                    apply,
                    x,
                }))
            }
            What::Network(architecture) => {
                let model = Model::on_device(architecture, SEED, dtype, device)?;
                let batch = batch(architecture, case.batch, dtype, device)?;
                if case.run != Run::Step {
                    let [points, _] = batch;
                    return Ok(Self::Inference(Box::new(model), points));
                }
                let training = Training::new(model, batch, features)?;
                Ok(Self::Step(Box::new(training)))
            }
        }
    }

    /// The parameters.
    pub(super) fn parameters(&self) -> &Parameters {
        match self {
            Self::Layer(layer) => &layer.parameters,
            Self::Inference(model, _) => model.parameters(),
            Self::Step(training) => training.model.parameters(),
        }
    }

    /// Runs once. On a GPU nothing waits.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        match self {
            Self::Layer(layer) => {
                let output = layer.output()?;
                if layer.is_both {
                    output.backward()?;
                }
            }
            Self::Inference(model, points) => {
                model.forward(points)?;
            }
            Self::Step(training) => {
                training.step()?;
            }
        }
        Ok(())
    }

    /// The operations of a run that move bytes.
    ///
    /// # Errors
    /// The errors of the run; on a GPU the errors of CUDA.
    pub(super) fn operations(&mut self, device: &Device) -> Result<Vec<Arc<Operation>>, Error> {
        let is_forward = match self {
            Self::Layer(layer) => !layer.is_both,
            Self::Inference(..) => true,
            Self::Step(_) => false,
        };
        let (ran, timeline) = timeline::record(device, || self.run())?;
        ran?;
        let slices = timeline.slices().iter().filter(|slice| slice.begins);
        let operations = slices.map(|slice| slice.operation.clone());
        // What candle does by itself has no bytes.
        let counts = |operation: &Arc<Operation>| {
            let is_wanted = !is_forward || operation.phase == Some(Pass::Forward);
            operation.tensor_bytes > 0 && is_wanted
        };
        Ok(operations.filter(counts).collect())
    }
}

impl LayerWork {
    /// The output.
    pub(super) fn output(&self) -> Result<Tensor, Error> {
        let mut inputs = vec![self.x.as_tensor().clone()];
        inputs.extend(self.others.iter().map(Other::tensor).cloned());
        Ok((self.apply)(&inputs)?)
    }

    /// The variables whose gradients are compared: inputs, and all parameters.
    pub(super) fn variables(&self) -> Vec<(String, Var)> {
        let mut all = vec![("x".to_owned(), self.x.clone())];
        all.extend(self.others.iter().filter_map(|other| match other {
            Other::Fixed(_) => None,
            Other::Varied(name, var) => Some(((*name).to_owned(), var.clone())),
        }));
        all.extend(self.parameters.variables());
        all
    }
}
