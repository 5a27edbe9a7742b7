//! Compares stages with gradients written by hand with what the CPU computes in chunks. The kernels are those of candle's operations here, so
//! all but the calls of the real ones is tested without a GPU.

use std::sync::Arc;

use candle_core::{D, Var};

use super::*;
use crate::op::node::{self, Argument};
use crate::op::transformer::cases::{cases, close, cross_cases, cross_inputs, inputs, variable};
use crate::op::transformer::gate::Gated;
use crate::op::transformer::geometry::Geometry;

/// Kernels of candle's operations on the CPU.
struct Composed(Geometry);

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

fn features(
    attention: &Attention,
    side: usize,
    x: &Tensor,
    weights: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    let weights = weights.map(|weights| weights.t()?.contiguous());
    let weights = weights.transpose()?;
    let places = attention.places_of(side).into_iter();
    let features = places.map(|place| {
        // `[1, heads, rows, features]`
        let features = attention.features(&place, &sample(x)?, weights.as_ref())?;
        features.squeeze(0)?.transpose(0, 1)?.contiguous()
    });
    features.collect()
}

impl Kernels for Composed {
    fn norm(&self, norm: &Norm, x: &Tensor) -> Result<Tensor> {
        norm.compose(&sample(x)?)?.squeeze(0)
    }

    fn norm_gradient(
        &self,
        norm: &Norm,
        x: &Tensor,
        g: &Tensor,
        through: Option<&Tensor>,
    ) -> Result<Tensor> {
        let [found] = gradients([x], g, |[x]| self.norm(norm, x))?;
        through.map_or(Ok(found.clone()), |through| found + through)
    }

    fn gate(&self, channels: Channels, x: &Tensor) -> Result<Tensor> {
        let blades = self.0.blades();
        Gated::new(channels)?
            .compose(blades, &sample(x)?)?
            .squeeze(0)
    }

    fn gate_gradient(&self, channels: Channels, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let [found] = gradients([x], g, |[x]| self.gate(channels, x))?;
        Ok(found)
    }

    fn products(&self, products: &Products, x: &Tensor) -> Result<Tensor> {
        let (rows, each) = (x.dim(0)?, products.each);
        let (blades, factors) = (products.blades, products.factor_count());
        let first_scalar = blades * products.input().multivectors;
        let mv = x.narrow(1, 0, first_scalar)?.contiguous()?;
        let mv = mv
            .reshape((rows, blades, factors * each))?
            .transpose(0, 1)?;
        let factor = |at: usize| mv.narrow(2, at * each, each)?.contiguous();
        let mut made = Vec::new();
        for (at, operator) in products.operators().enumerate() {
            let (left, right) = (factor(2 * at)?, factor(2 * at + 1)?);
            let arguments = [Argument::whole(&left), Argument::whole(&right)];
            made.push(node::apply(&Arc::new(operator.clone()), &arguments)?);
        }
        let made = Tensor::cat(&made, 2)?.transpose(0, 1)?.contiguous()?;
        let made = made.reshape((rows, blades * factors / 2 * each))?;
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

    fn heads(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
    ) -> Result<Vec<Tensor>> {
        features(attention, side, x, weights)
    }

    fn heads_gradient(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        of_features: &[Tensor],
    ) -> Result<(Tensor, Option<Tensor>)> {
        let flat = |all: &[Tensor]| {
            let flat: Vec<Tensor> = all.iter().map(Tensor::flatten_all).collect::<Result<_>>()?;
            Tensor::cat(&flat, 0)
        };
        let g = flat(of_features)?;
        let Some(weights) = weights else {
            let output = |[x]: [&Tensor; 1]| flat(&features(attention, side, x, None)?);
            let [of_x] = gradients([x], &g, output)?;
            return Ok((of_x, None));
        };
        let output =
            |[x, weights]: [&Tensor; 2]| flat(&features(attention, side, x, Some(weights))?);
        let [of_x, of_weights] = gradients([x, weights], &g, output)?;
        // All of it is the share of the first row.
        let rows = x.dim(0)?;
        let of_weights = of_weights.flatten_all()?.unsqueeze(0)?;
        let of_weights = of_weights.pad_with_zeros(0, 0, rows - 1)?;
        Ok((of_x, (side == 0).then_some(of_weights)))
    }

    fn merge(&self, attention: &Attention, features: &Tensor) -> Result<Tensor> {
        let features = match attention.shared {
            true => features.clone(),
            false => features.transpose(1, 2)?.contiguous()?,
        };
        let (samples, items, heads, width) = features.dims4()?;
        let rows = samples * items;
        let (blades, channels) = (attention.head.blades, attention.head.multivectors);
        let features = features.reshape((rows, heads, width))?;
        let mv = features.narrow(2, 0, blades * channels)?.contiguous()?;
        // The features of the CPU have a channel's blades side by side.
        let mv = mv.reshape((rows, heads, channels, blades))?;
        let mv = mv.permute((0, 3, 1, 2))?.contiguous()?;
        let mv = mv.reshape((rows, blades * heads * channels))?;
        let s = features.narrow(2, blades * channels, attention.head.scalars)?;
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

/// Compares output and gradients of both ways, for all inputs that have gradients at once, and in GATr for each alone.
fn compare(
    name: &str,
    geometry: Geometry,
    inputs: &[Tensor],
    run: impl Fn(&[Argument]) -> [Tensor; 2],
) {
    let variables = (0..inputs.len()).filter(|&at| inputs[at].is_variable());
    let all: Vec<usize> = variables.collect();
    let alone = if geometry.distances { &all[..] } else { &[] };
    let each = alone.iter().map(|&at| vec![at]);
    for tracked in std::iter::once(all.clone()).chain(each) {
        let given = inputs.iter().enumerate();
        let given: Vec<Tensor> = given
            .map(|(at, input)| match tracked.contains(&at) {
                true => input.clone(),
                false => input.detach(),
            })
            .collect();
        let arguments: Vec<Argument> = given.iter().map(Argument::whole).collect();
        let [whole, got] = run(&arguments);
        close(&whole, &got, name);
        let weights = variable(whole.dims(), 0.2).as_detached_tensor();
        let gradients = |output: &Tensor| {
            let sum = (output * &weights).unwrap().sum_all().unwrap();
            sum.backward().unwrap()
        };
        let (expected, got) = (gradients(&whole), gradients(&got));
        for (at, input) in inputs.iter().enumerate() {
            let (a, b) = (expected.get(input), got.get(input));
            assert_eq!(a.is_some(), b.is_some());
            if let (Some(a), Some(b)) = (a, b) {
                close(a, b, &format!("{name}: gradient {at}"));
            }
        }
    }
}

#[test]
fn stages_of_kernels() {
    for case in cases() {
        compare(
            &case.name,
            case.stages.geometry,
            &inputs(&case),
            |arguments| {
                let whole = node::apply(&case.stages, arguments).unwrap();
                let kernels = Composed(case.stages.geometry);
                [
                    whole,
                    function::apply(&case.stages, kernels, arguments).unwrap(),
                ]
            },
        );
    }
}

#[test]
fn attention_to_another_set() {
    for case in cross_cases() {
        compare(
            &case.name,
            case.crossing.attention.geometry,
            &cross_inputs(&case),
            |arguments| {
                let whole = node::apply(&case.crossing, arguments).unwrap();
                let kernels = Composed(case.crossing.attention.geometry);
                [
                    whole,
                    cross::apply(&case.crossing, kernels, arguments).unwrap(),
                ]
            },
        );
    }
}
