//! Times and checks a training step of the hulls model.

use candle_core::{DType, Device, Tensor};
use cayley::Signature;
use flashcliff::Algebra;
use flashcliff_bench::measure::{Effort, median, repetitions, seconds};
use flashcliff_bench::reference::{Formula, sigmoid};
use flashcliff_bench::report::{Memory, Row};
use flashcliff_candle::models::{Architecture, Hulls, Model};
use flashcliff_candle::objective::Objective;
use flashcliff_candle::optim::{Adam, AdamOptions};
use flashcliff_floor::values;

use crate::error::Error;
use crate::heap;

const POINTS: usize = 16;
const DIM: usize = 5;
const CHANNELS: usize = 32;
const PRODUCTS: usize = 4;
/// The difference of a prediction that rounding in f32 explains, relative to the largest prediction.
const TOLERANCE: f64 = 1e-3;
/// The number of predictions that are checked.
const CHECKED: usize = 3;

/// The number of steps in which the peak of the heap is measured. Later ones allocate what the next one does.
const COUNTED_STEPS: usize = 3;
/// The largest allowed ratio of the peak of the heap to the bytes of [`Hulls::saved_elements`] and of the parameters.
const MEMORY_TARGET: f64 = 1.5;

/// The largest time of a step that is aimed at, in seconds, with two threads.
const TARGET: f64 = 6e-3;

/// A training step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    batch: usize,
    /// Whether the batch is so small that the targets mean nothing.
    quick: bool,
}

impl Step {
    /// The step that is measured, or a small one.
    pub(super) fn new(quick: bool) -> Self {
        Self {
            batch: if quick { 8 } else { 128 },
            quick,
        }
    }

    /// The name in reports.
    pub(super) fn name(&self) -> String {
        format!("hulls training step cl500 batch {}", self.batch)
    }
}

/// A model in training.
struct Training {
    model: Model,
    adam: Adam,
    objective: Objective,
    batch: [Tensor; 2],
}

impl Training {
    fn new(step: &Step) -> Result<Self, Error> {
        let model = Model::new(Architecture::Hulls, 1, DType::F32)?;
        let shape = (step.batch, POINTS, DIM);
        Ok(Self {
            adam: Adam::new(model.parameters().variables(), AdamOptions::default())?,
            objective: Objective::new(&model, step.batch, 1)?,
            batch: [
                Tensor::from_vec(points(step), shape, &Device::Cpu)?,
                Tensor::from_vec(values(step.batch, 2), step.batch, &Device::Cpu)?,
            ],
            model,
        })
    }

    fn step(&mut self) -> Result<(), Error> {
        let loss = self.objective.evaluate(&self.batch)?;
        Ok(self.adam.objective_step(&mut self.objective, &loss)?)
    }
}

fn points(step: &Step) -> Vec<f32> {
    values(step.batch * POINTS * DIM, 1)
}

/// Measures the step and checks the predictions before.
///
/// # Errors
/// A wrong prediction.
pub(super) fn run(step: &Step, effort: Effort) -> Result<Row, Error> {
    let memory = memory(step)?;
    let mut training = Training::new(step)?;
    let difference = check(step, &training.model, &points(step), &training.batch[0])?;
    let times = repetitions(effort.round, || training.step())?;
    let mut own = Vec::new();
    for _ in 0..effort.repeats * effort.rounds {
        own.push(seconds(times, || training.step())?);
    }
    let seconds = median(own);
    let target_seconds = (!step.quick).then_some(TARGET);
    Ok(Row {
        name: step.name(),
        operator: None,
        bytes: None,
        flops: None,
        seconds,
        wall_seconds: None,
        captured_seconds: None,
        floor_seconds: None,
        ratio: None,
        roofline: None,
        target_seconds,
        met: target_seconds.map(|target| seconds <= target),
        relative_difference: difference,
        memory: Some(memory),
        repeats: Vec::new(),
    })
}

/// The most memory that a training takes at once, from the construction of its model on.
fn memory(step: &Step) -> Result<Memory, Error> {
    let small = Step {
        batch: step.batch.min(8),
        quick: step.quick,
    };
    let warm = || Training::new(&small)?.step();
    let train = || {
        let mut training = Training::new(step)?;
        for _ in 0..COUNTED_STEPS {
            training.step()?;
        }
        Ok(training)
    };
    let (peak, mut training) = heap::peak(warm, train)?;
    let heap = heap::count();
    training.step()?;
    let (allocated, largest_block) = (heap.asked(), heap.largest());
    // Adam keeps two moments of each parameter.
    let parameters = training.model.parameters().element_count();
    let elements = 3 * parameters + Hulls::saved_elements(step.batch);
    // A small batch has few activations, so the target does not apply.
    let target = (!step.quick).then_some(MEMORY_TARGET);
    Ok(Memory::new(elements * size_of::<f32>(), peak, target).with_step(allocated, largest_block))
}

/// Compares predictions with the formulas of the layers. Returns the largest relative difference.
fn check(step: &Step, model: &Model, points: &[f32], inputs: &Tensor) -> Result<f64, Error> {
    let network = Network::new(model)?;
    let got: Vec<f32> = model.forward(inputs)?.to_vec1()?;
    let algebra = Algebra::new(Signature::of(5, 0, 0))?;
    let formula = Formula::new("steerable_product", algebra.cayley())?;
    let samples = points.chunks_exact(POINTS * DIM).take(CHECKED);
    let expected: Vec<f64> = samples
        .map(|points| network.predict(&formula, algebra.blade_count(), points))
        .collect();
    let scale = expected
        .iter()
        .fold(0.0_f64, |scale, value| scale.max(value.abs()));
    let mut largest = 0.0_f64;
    for (index, (&expected, &got)) in expected.iter().zip(&got).enumerate() {
        let difference = (expected - f64::from(got)).abs();
        if difference.is_nan() || difference > TOLERANCE * scale {
            let wrong = flashcliff_bench::Error::WrongResult {
                case: step.name(),
                tensor: "prediction".to_owned(),
                index,
                expected,
                got: got.into(),
                tolerance: TOLERANCE * scale,
            };
            return Err(wrong.into());
        }
        largest = largest.max(difference / scale);
    }
    Ok(largest)
}

/// The parameters of the model in f64.
struct Network {
    embedding: [Vec<f64>; 2],
    /// `linear_right.weight`, `linear_left.weight`, `linear_left.bias`, `weight`, `normalization.a`.
    products: Vec<[Vec<f64>; 5]>,
    hidden: [Vec<f64>; 2],
    head: [Vec<f64>; 2],
}

impl Network {
    fn new(model: &Model) -> Result<Self, Error> {
        let variables = model.parameters().variables();
        let get = |name: String| -> Result<Vec<f64>, Error> {
            let found = variables.iter().find(|(n, _)| *n == name);
            let (_, var) = found.ok_or(flashcliff_candle::Error::MissingTensor { tensor: name })?;
            Ok(var.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
        };
        let pair = |layer: &str| -> Result<[Vec<f64>; 2], Error> {
            Ok([
                get(format!("{layer}.weight"))?,
                get(format!("{layer}.bias"))?,
            ])
        };
        let mut products = Vec::new();
        for layer in 1..=PRODUCTS {
            products.push([
                get(format!("net.{layer}.linear_right.weight"))?,
                get(format!("net.{layer}.linear_left.weight"))?,
                get(format!("net.{layer}.linear_left.bias"))?,
                get(format!("net.{layer}.weight"))?,
                get(format!("net.{layer}.normalization.a"))?,
            ]);
        }
        Ok(Self {
            embedding: pair("net.0")?,
            products,
            hidden: pair("mlp.0")?,
            head: pair("mlp.2")?,
        })
    }

    fn predict(&self, formula: &Formula<'_>, blades: usize, points: &[f32]) -> f64 {
        let [weight, bias] = &self.embedding;
        let mut x = vec![0.0; blades * CHANNELS];
        x[..CHANNELS].copy_from_slice(bias);
        for axis in 0..DIM {
            for channel in 0..CHANNELS {
                let coordinate = |point: usize| f64::from(points[point * DIM + axis]);
                x[(1 + axis) * CHANNELS + channel] = (0..POINTS)
                    .map(|p| weight[channel * POINTS + p] * coordinate(p))
                    .sum();
            }
        }
        for [right, left, bias, weight, a] in &self.products {
            let r = formula.linear(&x, right, None, CHANNELS, CHANNELS);
            let l = formula.linear(&x, left, Some(bias), CHANNELS, CHANNELS);
            x = formula.steerable(&x, &r, weight, a, &l, CHANNELS);
        }
        let norm = |channel: usize| {
            let squares = (0..blades).map(|blade| x[blade * CHANNELS + channel].powi(2));
            squares.sum::<f64>().sqrt()
        };
        let norms: Vec<f64> = (0..CHANNELS).map(norm).collect();
        let hidden = dense(&self.hidden, &norms);
        let hidden: Vec<f64> = hidden.iter().map(|&h| h * sigmoid(h)).collect();
        dense(&self.head, &hidden)[0]
    }
}

fn dense([weight, bias]: &[Vec<f64>; 2], x: &[f64]) -> Vec<f64> {
    let rows = weight.chunks_exact(x.len()).zip(bias);
    rows.map(|(row, bias)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias)
        .collect()
}
