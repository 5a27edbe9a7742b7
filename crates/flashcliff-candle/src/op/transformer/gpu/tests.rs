//! Compares stages with gradients written by hand with what the CPU computes in chunks. The kernels are those of candle's operations here, so
//! all but the calls of the real ones is tested without a GPU.

use std::sync::Arc;

use candle_core::{D, Device, Var};

use super::*;
use crate::op::node::{self, Argument};
use crate::op::transformer::BLADES;
use crate::op::transformer::function::Stages;
use crate::op::transformer::gate::Gated;
use crate::op::transformer::linear::Linear;
use crate::op::transformer::norm::Norm;
use crate::op::transformer::stage::Stage;

/// Kernels of candle's operations on the CPU.
struct Composed;

/// The gradients of an output of variables, of which the values are given.
fn gradients<const N: usize>(
    given: [&Tensor; N],
    g: &Tensor,
    output: impl Fn([&Tensor; N]) -> Result<Tensor>,
) -> Result<[Tensor; N]> {
    let variables: Vec<Var> = given
        .iter()
        .map(|x| Var::from_tensor(x))
        .collect::<Result<_>>()?;
    let output = output(std::array::from_fn(|at| variables[at].as_tensor()))?;
    let found = (output * g)?.sum_all()?.backward()?;
    Ok(std::array::from_fn(|at| {
        let found = found.get(&variables[at]).cloned();
        found.unwrap_or_else(|| given[at].zeros_like().unwrap())
    }))
}

/// One sample of all rows, for functions of tokens.
fn sample(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(0)
}

fn features(attention: &Attention, x: &Tensor, weights: &Tensor) -> Result<[Tensor; 3]> {
    let weights = weights.t()?.contiguous()?;
    let [query, key, value] = attention.places().map(|place| {
        // `[1, heads, rows, features]`
        let features = attention.features(&place, &sample(x)?, &weights)?;
        features.squeeze(0)?.transpose(0, 1)?.contiguous()
    });
    Ok([query?, key?, value?])
}

impl Kernels for Composed {
    fn norm(&self, channels: Channels, x: &Tensor) -> Result<Tensor> {
        Norm::new(channels)?.compose(&sample(x)?)?.squeeze(0)
    }

    fn norm_gradient(
        &self,
        channels: Channels,
        x: &Tensor,
        g: &Tensor,
        through: Option<&Tensor>,
    ) -> Result<Tensor> {
        let [found] = gradients([x], g, |[x]| self.norm(channels, x))?;
        through.map_or(Ok(found.clone()), |through| found + through)
    }

    fn gate(&self, channels: Channels, x: &Tensor) -> Result<Tensor> {
        Gated::new(channels)?.compose(&sample(x)?)?.squeeze(0)
    }

    fn gate_gradient(&self, channels: Channels, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let [found] = gradients([x], g, |[x]| self.gate(channels, x))?;
        Ok(found)
    }

    fn products(&self, products: &Products, x: &Tensor) -> Result<Tensor> {
        let (rows, each) = (x.dim(0)?, products.each);
        let first_scalar = BLADES * products.input().multivectors;
        let mv = x.narrow(1, 0, first_scalar)?.contiguous()?;
        let mv = mv.reshape((rows, BLADES, 4 * each))?.transpose(0, 1)?;
        let factor = |at: usize| mv.narrow(2, at * each, each)?.contiguous();
        let mut made = Vec::new();
        for (at, operator) in [&products.geometric, &products.regressive]
            .into_iter()
            .enumerate()
        {
            let (left, right) = (factor(2 * at)?, factor(2 * at + 1)?);
            let arguments = [Argument::whole(&left), Argument::whole(&right)];
            made.push(node::apply(&Arc::new(operator.clone()), &arguments)?);
        }
        let made = Tensor::cat(&made, 2)?.transpose(0, 1)?.contiguous()?;
        let made = made.reshape((rows, BLADES * 2 * each))?;
        let scalars = products.input().scalars;
        Tensor::cat(
            &[&made, &x.narrow(1, first_scalar, scalars)?.contiguous()?],
            1,
        )
    }

    fn products_gradient(&self, products: &Products, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let [found] = gradients([x], g, |[x]| self.products(products, x))?;
        Ok(found)
    }

    fn heads(&self, attention: &Attention, x: &Tensor, weights: &Tensor) -> Result<[Tensor; 3]> {
        features(attention, x, weights)
    }

    fn heads_gradient(
        &self,
        attention: &Attention,
        x: &Tensor,
        weights: &Tensor,
        of_features: &[Tensor; 3],
    ) -> Result<(Tensor, Tensor)> {
        let flat = |all: &[Tensor; 3]| {
            let flat: Vec<Tensor> = all.iter().map(Tensor::flatten_all).collect::<Result<_>>()?;
            Tensor::cat(&flat, 0)
        };
        let g = flat(of_features)?;
        let output = |[x, weights]: [&Tensor; 2]| flat(&features(attention, x, weights)?);
        let [of_x, of_weights] = gradients([x, weights], &g, output)?;
        // All of it is the share of the first row.
        let rows = x.dim(0)?;
        let of_weights = of_weights.flatten_all()?.unsqueeze(0)?;
        Ok((of_x, of_weights.pad_with_zeros(0, 0, rows - 1)?))
    }

    fn merge(&self, attention: &Attention, features: &Tensor) -> Result<Tensor> {
        let features = match attention.shared {
            true => features.clone(),
            false => features.transpose(1, 2)?.contiguous()?,
        };
        let (samples, items, heads, width) = features.dims4()?;
        let rows = samples * items;
        let channels = attention.head.multivectors;
        let features = features.reshape((rows, heads, width))?;
        let mv = features.narrow(2, 0, BLADES * channels)?.contiguous()?;
        // The features of the CPU have a channel's blades side by side.
        let mv = mv.reshape((rows, heads, channels, BLADES))?;
        let mv = mv.permute((0, 3, 1, 2))?.contiguous()?;
        let mv = mv.reshape((rows, BLADES * heads * channels))?;
        let s = features.narrow(2, BLADES * channels, attention.head.scalars)?;
        let s = s
            .contiguous()?
            .reshape((rows, heads * attention.head.scalars))?;
        Tensor::cat(&[mv, s], D::Minus1)
    }

    fn merge_gradient(
        &self,
        attention: &Attention,
        g: &Tensor,
        features: [usize; 4],
    ) -> Result<Tensor> {
        let zeros = Tensor::zeros(&features[..], g.dtype(), g.device())?;
        let [found] = gradients([&zeros], g, |[x]| self.merge(attention, x))?;
        Ok(found)
    }

    fn column_sums(&self, x: &Tensor, runs: &[(usize, usize)]) -> Result<Tensor> {
        let sums = x.sum(0)?.to_vec1::<f64>()?;
        let wanted = |at| {
            runs.iter()
                .any(|&(start, stop)| (start..stop).contains(&at))
        };
        // Nothing may read the others.
        let sums = sums.into_iter().enumerate();
        let sums: Vec<f64> = sums
            .map(|(at, sum)| if wanted(at) { sum } else { f64::NAN })
            .collect();
        Tensor::from_vec(sums, x.dim(1)?, x.device())
    }
}

fn variable(shape: &[usize], phase: f64) -> Var {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (phase + 0.7 * i as f64).sin()).collect();
    Var::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn close(a: &Tensor, b: &Tensor, what: &str) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let largest = values(a).into_iter().fold(1.0, |l: f64, x| l.max(x.abs()));
    for (a, b) in values(a).into_iter().zip(values(b)) {
        // A comparison with NaN fails.
        assert!((a - b).abs() <= 1e-11 * largest, "{what}: {a} and {b}");
    }
}

/// Compares output and gradients of both ways, for all inputs at once and for each alone.
fn compare(name: &'static str, stages: Vec<Stage>) {
    let stages = Arc::new(Stages::new(name, stages));
    let mut variables = vec![variable(&[19, 3, stages.input().width()], 0.1)];
    if stages.has_joins {
        variables.push(variable(&[19, 3], 0.4));
    }
    for (at, shape) in stages.shapes.iter().enumerate() {
        variables.push(variable(shape, 0.3 + at as f64));
    }
    let tracked: Vec<usize> = (0..variables.len()).collect();
    let each = tracked.iter().map(|&at| vec![at]);
    for tracked in std::iter::once(tracked.clone()).chain(each) {
        let given: Vec<Tensor> = variables
            .iter()
            .enumerate()
            .map(|(at, variable)| match tracked.contains(&at) {
                true => variable.as_tensor().clone(),
                false => variable.as_detached_tensor(),
            })
            .collect();
        let arguments: Vec<Argument> = given.iter().map(Argument::whole).collect();
        let whole = node::apply(&stages, &arguments).unwrap();
        let got = function::apply(&stages, Composed, &arguments).unwrap();
        close(&whole, &got, name);
        let weights = variable(whole.dims(), 0.2).as_detached_tensor();
        let gradients = |output: &Tensor| {
            let sum = (output * &weights).unwrap().sum_all().unwrap();
            sum.backward().unwrap()
        };
        let (expected, got) = (gradients(&whole), gradients(&got));
        for (at, variable) in variables.iter().enumerate() {
            let (a, b) = (expected.get(variable), got.get(variable));
            assert_eq!(a.is_some(), b.is_some());
            if let (Some(a), Some(b)) = (a, b) {
                close(a, b, &format!("{name}: gradient {at}"));
            }
        }
    }
}

fn linear(from: Channels, to: Vec<Channels>) -> Stage {
    Stage::Linear(Linear::new(from, to).unwrap())
}

fn norm(channels: Channels) -> Stage {
    Stage::Norm(Norm::new(channels).unwrap())
}

const FROM: Channels = Channels::new(2, 3);

#[test]
fn linear_layers() {
    let to = || vec![Channels::new(1, 2), Channels::new(3, 1)];
    compare("both", vec![linear(FROM, to())]);
    let without = Channels::new(2, 0);
    compare("no scalar inputs", vec![linear(without, to())]);
    compare("neither", vec![linear(without, vec![without])]);
    compare(
        "two",
        vec![linear(FROM, to()), linear(Channels::new(4, 3), vec![FROM])],
    );
}

#[test]
fn norms_and_gates() {
    compare("norm", vec![norm(FROM)]);
    compare("gate", vec![Stage::Gated(Gated::new(FROM).unwrap())]);
    compare(
        "residual",
        vec![Stage::Residual(vec![norm(FROM), linear(FROM, vec![FROM])])],
    );
    let gate = Stage::Gated(Gated::new(FROM).unwrap());
    let inner = vec![Stage::Residual(vec![gate]), norm(FROM)];
    compare("residual in a residual", vec![Stage::Residual(inner)]);
}

fn bilinear() -> Vec<Stage> {
    let factors = Linear::beside_scalars(FROM, vec![2; 4]).unwrap();
    let products = Products::new(2, FROM.scalars).unwrap();
    let out = linear(Channels::new(4, FROM.scalars), vec![FROM]);
    vec![Stage::Linear(factors), Stage::Products(products), out]
}

#[test]
fn products_and_joins() {
    let products = Products::new(2, 3).unwrap();
    compare("products", vec![Stage::Products(products)]);
    compare("bilinear", vec![Stage::Residual(bilinear())]);
    let twice = [bilinear(), bilinear()].into_iter().flatten().collect();
    compare("two bilinear layers of one reference", twice);
}

fn attention_layer(heads: usize, shared: bool) -> Vec<Stage> {
    let attention = Attention::new(heads, Channels::new(2, 3), shared);
    let parts = linear(FROM, attention.parts().into());
    let out = linear(attention.output(), vec![FROM]);
    vec![parts, Stage::Attention(attention), out]
}

#[test]
fn attention() {
    for (heads, shared) in [(2, true), (2, false), (3, false), (1, true)] {
        compare(
            "attention",
            vec![Stage::Residual(attention_layer(heads, shared))],
        );
    }
    let attention = Attention::new(2, Channels::new(1, 0), true);
    compare(
        "attention without scalars",
        vec![Stage::Attention(attention)],
    );
}

#[test]
fn block() {
    let mut attention = vec![norm(FROM)];
    attention.extend(attention_layer(2, true));
    let mut perceptron = vec![norm(FROM)];
    perceptron.extend(bilinear());
    perceptron.push(Stage::Gated(Gated::new(FROM).unwrap()));
    perceptron.push(linear(FROM, vec![FROM]));
    compare(
        "block",
        vec![Stage::Residual(attention), Stage::Residual(perceptron)],
    );
}
