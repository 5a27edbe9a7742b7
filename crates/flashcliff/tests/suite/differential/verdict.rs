//! The results of a call against the reference.

use flashcliff::Element;

use super::draw::Call;
use crate::compare::{bounded, exact};
use crate::derivatives::Derivatives;
use crate::harness;
use crate::numbers::Bounded;
use crate::random::Random;
use crate::reference::evaluate;
use flashcliff_program::reference::Number;

/// The factor on error bounds of gradients. A gradient is summed in the order of the backward pass, not in that of the
/// derivative: its error has the same terms, a few of them twice. In `f64` the reference is off by as much again.
const SLACK: f64 = 2.0;
/// How many elements of a gradient are compared one by one. Besides these, one derivative is compared in a direction
/// that all elements enter.
const PROBES: usize = 2;

/// The results of a call.
pub(super) struct Results<T> {
    pub(super) output: Vec<T>,
    /// The gradients; empty if not wanted.
    pub(super) grads: Vec<Vec<T>>,
}

impl Call<'_> {
    /// Runs both passes and compares them. Returns the largest used share of an error bound; `None` if the reference has no
    /// bound, because a quadratic form that a norm divides by cancels within its rounding error.
    pub(super) fn check(&self) -> Result<Option<f64>, String> {
        let share = if self.single {
            self.compare::<24, f32>(&self.results(), 1.0)
        } else {
            self.compare::<53, f64>(&self.results(), 2.0)
        };
        match share {
            Err(_) if !self.exact && !self.is_bounded() => Ok(None),
            share => share.map(Some),
        }
    }

    fn is_bounded(&self) -> bool {
        let mut errors: Vec<f64> = Vec::new();
        if self.single {
            errors.extend(self.reference::<Bounded<24>>().iter().map(|x| x.error));
        } else {
            errors.extend(self.reference::<Bounded<53>>().iter().map(|x| x.error));
        }
        errors.iter().all(|error| error.is_finite())
    }

    pub(super) fn results<T: Element>(&self) -> Results<T> {
        let (op, dims, inputs, offset) = (&self.op, self.dims, &self.inputs, self.offset);
        let (grad_output, wanted) = (&self.grad_output, &self.wanted);
        self.pool.install(|| {
            let call = harness::Call::<T>::new(op, dims, inputs, offset);
            let forward = call.forward();
            Results {
                grads: call.backward(&forward, grad_output, wanted),
                output: forward.output.get().to_vec(),
            }
        })
    }

    pub(super) fn compare<const BITS: i32, T: Element>(
        &self,
        results: &Results<T>,
        slack: f64,
    ) -> Result<f64, String> {
        if self.exact {
            exact(&self.reference::<i128>(), &results.output)?;
            self.compare_gradients(results, |got, want: i128| {
                let want = want as f64;
                match got == want {
                    true => Ok(0.0),
                    false => Err(format!("expected {want}, got {got}")),
                }
            })
        } else {
            let share = bounded(&self.reference::<Bounded<BITS>>(), &results.output, slack)?;
            let gradients = self.compare_gradients(results, |got, want: Bounded<BITS>| {
                bounded(&[want], &[got], slack * SLACK)
            })?;
            Ok(share.max(gradients))
        }
    }

    fn reference<N: Number>(&self) -> Vec<N> {
        let number = |x: &Vec<f64>| x.iter().map(|&x| N::input(x)).collect();
        let inputs: Vec<Vec<N>> = self.inputs.iter().map(number).collect();
        evaluate(self.basis, &self.spec, &self.dims, &inputs)
    }

    /// Compares derivatives along directions with those that the gradients give.
    fn compare_gradients<T: Element, N: Number>(
        &self,
        results: &Results<T>,
        same: impl Fn(f64, N) -> Result<f64, String>,
    ) -> Result<f64, String> {
        let mut random = Random::new(self.seed ^ 0xD1FF);
        let mut worst = 0.0_f64;
        let zero: Vec<Vec<f64>> = self.inputs.iter().map(|x| vec![0.0; x.len()]).collect();
        let mut all = zero.clone();
        for (direction, &wanted) in all.iter_mut().zip(&self.wanted) {
            if wanted {
                *direction = random.integers(direction.len());
            }
        }
        let mut directions = vec![("all wanted elements".to_owned(), all)];
        let filled = |&tensor: &usize| self.wanted[tensor] && !self.inputs[tensor].is_empty();
        let tensors: Vec<usize> = (0..self.inputs.len()).filter(filled).collect();
        for _ in 0..PROBES {
            if tensors.is_empty() {
                break;
            }
            let tensor = random.pick(&tensors);
            let element = random.below(self.inputs[tensor].len());
            let mut direction = zero.clone();
            direction[tensor][element] = 1.0;
            directions.push((format!("element {element} of input {tensor}"), direction));
        }
        let derivatives = Derivatives {
            basis: self.basis,
            spec: &self.spec,
            dims: &self.dims,
            inputs: &self.inputs,
            grad_output: &self.grad_output,
        };
        for (what, direction) in directions {
            let pairs = results.grads.iter().zip(&direction);
            let pairs = pairs.flat_map(|(grad, direction)| grad.iter().zip(direction));
            let got = pairs.map(|(g, v)| g.to_f64() * v).sum();
            let share = same(got, derivatives.along(&direction));
            worst = worst.max(share.map_err(|e| format!("gradient of {what}: {e}"))?);
        }
        let finite = results
            .grads
            .iter()
            .flatten()
            .all(|g| g.to_f64().is_finite());
        if !finite {
            return Err("a gradient was not written".to_owned());
        }
        Ok(worst)
    }
}

/// Moves one number of a result. Every such change must be found, except in a few calls whose bounds are wide, near the
/// kink of a norm.
#[test]
fn a_wrong_result_is_found() {
    use super::draw::World;

    let scale = |values: &[f64]| values.iter().fold(1e-3, |s: f64, v| s.max(v.abs()));
    let world = World::new();
    let (mut moved, mut missed) = ([0, 0], [0, 0]);
    for seed in 0..400 {
        let call = Call::draw(&world, seed, false);
        let Some(call) = call.filter(|call| !call.single && !call.is_empty()) else {
            continue;
        };
        let right = call.results::<f64>();
        assert!(call.compare::<53, f64>(&right, 2.0).is_ok(), "{call:?}");
        let mut random = Random::new(seed);
        if !right.output.is_empty() {
            let mut wrong = call.results::<f64>();
            wrong.output[random.below(right.output.len())] += 1e-9 * scale(&right.output);
            moved[0] += 1;
            missed[0] += usize::from(call.compare::<53, f64>(&wrong, 2.0).is_ok());
        }
        if let Some(tensor) = right.grads.iter().position(|grad| !grad.is_empty()) {
            let mut wrong = call.results::<f64>();
            let grad = &mut wrong.grads[tensor];
            // Every element enters the derivative along the direction of all of them.
            grad[random.below(right.grads[tensor].len())] += 1e-6 * scale(&right.grads[tensor]);
            moved[1] += 1;
            missed[1] += usize::from(call.compare::<53, f64>(&wrong, 2.0).is_ok());
        }
    }
    println!("moved {moved:?}, missed {missed:?}");
    for (moved, missed) in moved.into_iter().zip(missed) {
        assert!(
            moved > 80 && missed * 20 < moved,
            "{missed} of {moved} missed"
        );
    }
}
