//! Compares a case with the same case in f64 on the CPU, or in f32 if it is that one, before it is timed.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};

use super::cases::NetworkCase;
use super::tolerance::{Norms, Tolerance};
use super::work::{LayerWork, Training, Work, other_type};
use crate::error::Error;

/// The difference of a change of a parameter, relative to the learning rate.
const CHANGE: f64 = 0.02;
/// The steps whose losses are compared. A wrong step shows in the next loss.
const STEPS: usize = 3;

/// Compares the results of a run. Returns the largest relative difference of outputs, predictions or losses.
///
/// # Errors
/// A wrong result; the errors of the work.
pub(super) fn check(case: &NetworkCase, work: &mut Work, device: &Device) -> Result<f64, Error> {
    let other = other_type(case, device);
    let mut reference = work.reference(case, other)?;
    let tolerance = Tolerance::of(case, other);
    let checker = Checker {
        case: case.name(),
        tolerance,
    };
    match (work, &mut reference) {
        (Work::Layer(layer), Work::Layer(reference)) => checker.layer(layer, reference),
        (Work::Inference(model, points), Work::Inference(reference, wide)) => {
            let got = numbers(&model.forward(points)?)?;
            let expected = numbers(&reference.forward(wide)?)?;
            checker.close("prediction", &got, &expected, tolerance.output, 0.0)
        }
        (Work::Step(training), Work::Step(reference)) => checker.steps(training, reference),
        _ => unreachable!("a reference is made of the same case"),
    }
}

/// All elements in f64.
fn numbers(tensor: &Tensor) -> Result<Vec<f64>, Error> {
    let on_cpu = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
    Ok(on_cpu.flatten_all()?.to_vec1()?)
}

fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |largest, value| largest.max(value.abs()))
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// The norm of all expected gradients together.
fn whole(all: &[Compared]) -> f64 {
    norm(
        all.iter()
            .flat_map(|(_, _, expected)| expected.iter().copied()),
    )
}

/// The elements of a gradient: the name of its variable, those that came, and those that were expected.
type Compared = (String, Vec<f64>, Vec<f64>);

struct Checker {
    case: String,
    tolerance: Tolerance,
}

impl Checker {
    /// Compares elements. The tolerance is relative to the largest expected one, or to `least`, if that is larger.
    /// Returns the largest relative difference.
    fn close(
        &self,
        tensor: &str,
        got: &[f64],
        expected: &[f64],
        tolerance: f64,
        least: f64,
    ) -> Result<f64, Error> {
        let wrong = |index: usize, expected: f64, got: f64, tolerance: f64| {
            Error::from(flashcliff_bench::Error::WrongResult {
                case: self.case.clone(),
                tensor: tensor.to_owned(),
                index,
                expected,
                got,
                tolerance,
            })
        };
        if got.len() != expected.len() {
            return Err(wrong(got.len(), expected.len() as f64, f64::NAN, 0.0));
        }
        let scale = largest(expected).max(least);
        let mut worst = 0.0_f64;
        for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
            let difference = (got - expected).abs();
            // The comparison also fails if one of them is not a number.
            if difference <= tolerance * scale {
                worst = worst.max(difference / scale.max(f64::MIN_POSITIVE));
            } else {
                return Err(wrong(index, expected, got, tolerance * scale));
            }
        }
        Ok(worst)
    }

    /// Compares the output, and the gradients of its sum.
    fn layer(&self, layer: &LayerWork, reference: &LayerWork) -> Result<f64, Error> {
        let (output, expected) = (layer.output()?, reference.output()?);
        let (got, wanted) = (numbers(&output)?, numbers(&expected)?);
        let worst = self.close("o", &got, &wanted, self.tolerance.output, 0.0)?;
        let of = |store: &GradStore, var: &Var| match store.get(var) {
            Some(gradient) => numbers(gradient),
            None => Ok(Vec::new()),
        };
        let (got, expected) = (output.backward()?, expected.backward()?);
        let pairs = layer.variables().into_iter().zip(reference.variables());
        let mut gradients = Vec::new();
        for ((name, own), (_, other)) in pairs {
            gradients.push((name, of(&got, &own)?, of(&expected, &other)?));
        }
        self.gradients(&gradients)?;
        Ok(worst)
    }

    /// Compares gradients: name, got, expected.
    fn gradients(&self, all: &[Compared]) -> Result<(), Error> {
        if let Some(norms) = self.tolerance.norms {
            return self.norms(norms, all);
        }
        let gradient = self.tolerance.gradient;
        let least = self.least(all);
        for (name, got, expected) in all {
            let name = format!("gradient of {name}");
            self.close(&name, got, expected, gradient, least)?;
        }
        Ok(())
    }

    /// Compares the norms of the errors of gradients with the norms of the gradients.
    fn norms(&self, bounds: Norms, all: &[Compared]) -> Result<(), Error> {
        let small = |name: &str, error: f64, bound: f64| {
            let name = format!("norm of the error of {name}");
            self.close(&name, &[error], &[0.0], bound, 1.0)
        };
        let least = self.least(all);
        let mut errors = Vec::new();
        for (name, got, expected) in all {
            let name = format!("gradient of {name}");
            if got.len() != expected.len() {
                // A gradient that is missing, or of another size.
                self.close(&name, got, expected, 0.0, 0.0)?;
            }
            let error = norm(got.iter().zip(expected).map(|(got, wanted)| got - wanted));
            if let Some(own) = bounds.own {
                let bound = own * norm(expected.iter().copied()) + least;
                small(&name, error, bound)?;
            }
            errors.push(error);
        }
        let bound = bounds.all * whole(all);
        small("all gradients", norm(errors.into_iter()), bound)?;
        Ok(())
    }

    /// The size of gradients that may be rounding alone.
    fn least(&self, all: &[Compared]) -> f64 {
        let Tolerance {
            gradient,
            zero,
            norms,
            ..
        } = self.tolerance;
        let largest = all.iter().map(|(_, _, expected)| largest(expected));
        match norms {
            Some(norms) => norms.roundoff * whole(all),
            None => zero * largest.fold(0.0, f64::max) / gradient,
        }
    }

    /// Compares losses of some steps, and of the first one gradients and changes of parameters.
    fn steps(&self, training: &mut Training, reference: &mut Training) -> Result<f64, Error> {
        let mut worst = 0.0_f64;
        for step in 0..STEPS {
            let loss = training.objective.evaluate(&training.batch)?;
            let expected = reference.objective.evaluate(&reference.batch)?;
            let name = format!("loss of step {}", step + 1);
            let (got, wanted) = (numbers(&loss)?, numbers(&expected)?);
            let difference = self.close(&name, &got, &wanted, self.tolerance.output, 0.0)?;
            worst = worst.max(difference);
            let mut gradients = Vec::new();
            let mut before = Vec::new();
            if step == 0 {
                gradients = self.gradients_of(training, reference)?;
                self.gradients(&gradients)?;
                before = values_of(training, reference)?;
            }
            training
                .adam
                .objective_step(&mut training.objective, &loss)?;
            reference
                .adam
                .objective_step(&mut reference.objective, &expected)?;
            if step == 0 {
                let after = values_of(training, reference)?;
                let rate = training.adam.options().learning_rate;
                self.changes(&gradients, &before, &after, rate)?;
            }
        }
        Ok(worst)
    }

    fn gradients_of(
        &self,
        training: &Training,
        reference: &Training,
    ) -> Result<Vec<Compared>, Error> {
        let of = |training: &Training, var: &Var| match training.objective.gradient_of(var)? {
            Some(gradient) => numbers(&gradient),
            None => Ok(Vec::new()),
        };
        let own = training.model.parameters().variables();
        let others = reference.model.parameters().variables();
        let mut all = Vec::new();
        let scale = training.loss_scale()?;
        for ((name, own), (_, other)) in own.into_iter().zip(others) {
            let got = of(training, &own)?.into_iter();
            let got = got.map(|gradient| gradient / scale).collect();
            all.push((name, got, of(reference, &other)?));
        }
        Ok(all)
    }

    /// Compares what a step changed, where the gradient is large enough for its sign to be certain.
    fn changes(
        &self,
        gradients: &[Compared],
        before: &[[Vec<f64>; 2]],
        after: &[[Vec<f64>; 2]],
        rate: f64,
    ) -> Result<(), Error> {
        let least = self.least(gradients);
        for ((name, _, gradient), (before, after)) in gradients.iter().zip(before.iter().zip(after))
        {
            let significant = (self.tolerance.significant * largest(gradient)).max(least);
            let places = (0..gradient.len()).filter(|&at| gradient[at].abs() > significant);
            let change = |which: usize| -> Vec<f64> {
                let each = places.clone();
                each.map(|at| after[which][at] - before[which][at])
                    .collect()
            };
            let (got, expected) = (change(0), change(1));
            self.close(&format!("change of {name}"), &got, &expected, CHANGE, rate)?;
        }
        Ok(())
    }
}

/// The values of all parameters, of a model and of its reference.
fn values_of(training: &Training, reference: &Training) -> Result<Vec<[Vec<f64>; 2]>, Error> {
    let own = training.model.parameters().variables();
    let others = reference.model.parameters().variables();
    let pairs = own.iter().zip(&others);
    pairs
        .map(|((_, own), (_, other))| Ok([numbers(own)?, numbers(other)?]))
        .collect()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
