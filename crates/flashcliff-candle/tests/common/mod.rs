//! Numbers for tests, comparisons, and the references of operators, which share no code with programs and kernels.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses its own part"
)]

use candle_core::{DType, Device, Tensor};
use flashcliff::{Algebra, Signature};
use flashcliff_candle::init::Parameters;
use flashcliff_program::operators::{Settings, Value, find};
use flashcliff_program::reference::{Basis, evaluate};

pub fn values(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

/// Numbers in (-1, 1) with a long period.
pub fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::from_vec(noise(shape.iter().product(), seed), shape, &Device::Cpu).unwrap()
}

/// Moves every parameter away from its start value, so that no term hides behind a zero or a one.
pub fn disturb(parameters: &Parameters, seed: u64) {
    for (i, (_, var)) in parameters.variables().iter().enumerate() {
        let shift = random(var.dims(), seed + i as u64)
            .to_dtype(var.dtype())
            .unwrap();
        var.set(&(var.as_tensor() + (shift * 0.3).unwrap()).unwrap())
            .unwrap();
    }
}

pub fn parameter(parameters: &Parameters, name: &str) -> Vec<f64> {
    let var = parameters.get(name);
    values(&var.unwrap_or_else(|| panic!("no parameter {name}")))
}

pub fn assert_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(
            error <= tolerance * largest,
            "{what}: element {i}: got {got}, expected {expected}"
        );
    }
    assert!(
        expected.iter().any(|x| x.abs() > 1e-6),
        "{what}: nothing but zeros proves nothing"
    );
}

/// An algebra, with the references of its operators.
pub struct Reference {
    pub algebra: Algebra,
    basis: Basis,
}

impl Reference {
    pub fn new(p: usize, q: usize) -> Self {
        let signature = Signature::new(p, q, 0).unwrap();
        Self {
            algebra: Algebra::new(signature).unwrap(),
            basis: Basis::new(signature),
        }
    }

    /// The output of an operator with some settings, for a batch with channels of inputs and of the output. Tensors
    /// are `[blades, batch, channels]`.
    pub fn of(
        &self,
        name: &str,
        settings: &[(&'static str, Value)],
        sizes: [usize; 3],
        inputs: &[&[f64]],
    ) -> Vec<f64> {
        let entry = find(name).unwrap();
        let defaults = Settings::of(&entry.row);
        let settings = settings.iter();
        let settings = settings.fold(defaults, |all, &(name, value)| all.with(name, value));
        let inputs: Vec<Vec<f64>> = inputs.iter().map(|input| input.to_vec()).collect();
        evaluate(entry, &settings, &self.basis, sizes, &inputs)
    }

    /// A linear map for each grade, with a bias on the scalar blade if there is one.
    pub fn linear(&self, sizes: [usize; 3], x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let (kind, inputs) = match bias {
            [] => ("none", vec![x, weight]),
            _ => ("scalar", vec![x, weight, bias]),
        };
        self.of("mv_linear", &[("bias", Value::Name(kind))], sizes, &inputs)
    }
}

/// Checks that the message of an error has some words.
#[track_caller]
pub fn says<T>(result: Result<T, impl Into<flashcliff_candle::Error>>, words: &[&str]) {
    let Err(error) = result else {
        panic!("no error: {words:?}");
    };
    let error = error.into().to_string();
    let has_all = words.iter().all(|word| error.contains(word));
    assert!(has_all, "{error}: {words:?}");
}
