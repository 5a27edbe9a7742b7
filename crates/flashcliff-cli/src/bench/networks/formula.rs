//! Predictions of the hulls network by the formulas of its layers, without kernels.

use candle_core::{DType, Device};
use cayley::Signature;
use flashcliff::Algebra;
use flashcliff_bench::reference::{Formula, sigmoid};
use flashcliff_candle::models::Model;
use flashcliff_program::operators::Value;

use crate::error::Error;

const POINTS: usize = 16;
const DIM: usize = 5;
const CHANNELS: usize = 32;
const PRODUCTS: usize = 4;
/// The number of predictions that are computed: one takes milliseconds.
const COMPUTED: usize = 3;

/// The predictions for the first few of these samples.
///
/// # Errors
/// Parameters of another model.
pub(super) fn predictions(model: &Model, points: &[f64]) -> Result<Vec<f64>, Error> {
    let network = Network::new(model)?;
    let algebra = Algebra::new(Signature::of(5, 0, 0))?;
    let formulas = Formulas::new(algebra.cayley())?;
    let samples = points.chunks_exact(POINTS * DIM).take(COMPUTED);
    let predict = |points| network.predict(&formulas, algebra.blade_count(), points);
    Ok(samples.map(predict).collect())
}

/// The references of the operators of the network.
struct Formulas {
    map: Formula,
    map_with_bias: Formula,
    product: Formula,
}

impl Formulas {
    fn new(algebra: &cayley::Algebra) -> Result<Self, Error> {
        let map = || Formula::new("mv_linear", algebra);
        Ok(Self {
            map: map()?.with("bias", Value::Name("none")),
            map_with_bias: map()?,
            product: Formula::new("steerable_product", algebra)?,
        })
    }
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
            let on_cpu = var.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
            Ok(on_cpu.flatten_all()?.to_vec1()?)
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

    fn predict(&self, formulas: &Formulas, blades: usize, points: &[f64]) -> f64 {
        let [weight, bias] = &self.embedding;
        let mut x = vec![0.0; blades * CHANNELS];
        x[..CHANNELS].copy_from_slice(bias);
        for axis in 0..DIM {
            for channel in 0..CHANNELS {
                let coordinate = |point: usize| points[point * DIM + axis];
                x[(1 + axis) * CHANNELS + channel] = (0..POINTS)
                    .map(|p| weight[channel * POINTS + p] * coordinate(p))
                    .sum();
            }
        }
        for [right, left, bias, weight, a] in &self.products {
            let of = |formula: &Formula, inputs: &[&Vec<f64>]| {
                let inputs: Vec<Vec<f64>> = inputs.iter().map(|input| (*input).clone()).collect();
                formula.row(&inputs, CHANNELS, CHANNELS)
            };
            let r = of(&formulas.map, &[&x, right]);
            let l = of(&formulas.map_with_bias, &[&x, left, bias]);
            x = of(&formulas.product, &[&x, &r, weight, a, &l]);
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
