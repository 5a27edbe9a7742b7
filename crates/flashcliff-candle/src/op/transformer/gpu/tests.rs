//! Compares stages with gradients written by hand with what the CPU computes in chunks. The kernels are those of candle's operations here, so
//! all but the calls of the real ones is tested without a GPU.

use std::sync::Arc;

use candle_core::{D, Var};

use super::*;
use crate::op::node::{self, Argument};
use crate::op::transformer::cases::{cases, close, cross_cases, cross_inputs, inputs, variable};
use crate::op::transformer::features::Part;
use crate::op::transformer::gate::Gated;
use crate::op::transformer::geometry::Geometry;

/// Kernels of candle's operations on the CPU.
struct Composed {
    geometry: Geometry,
    /// Whether attention is one of the kernels.
    fused: bool,
}

/// Kernels want widths that are multiples of this.
const ALIGNED: usize = 4;

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
    [width, value_width]: [usize; 2],
) -> Result<Vec<Tensor>> {
    let weights = weights.map(|weights| weights.t()?.contiguous());
    let weights = weights.transpose()?;
    let places = attention.places_of(side).into_iter();
    let features = places.map(|place| {
        // `[1, heads, rows, features]`
        let features = attention.features(&place, &sample(x)?, weights.as_ref())?;
        let features = features.squeeze(0)?.transpose(0, 1)?.contiguous()?;
        let width = match place.part {
            Part::Query | Part::Key => width,
            Part::Value => value_width,
        };
        let missing = width - features.dim(D::Minus1)?;
        features.pad_with_zeros(D::Minus1, 0, missing)
    });
    features.collect()
}

/// Attention within sequences, one after another, and the logarithms of sums.
fn attended(heads: &Heads, [query, key, value]: [&Tensor; 3]) -> Result<(Tensor, Tensor)> {
    let rows = [query, key].map(|x| x.dims()[0]);
    let bounds: Vec<Vec<u32>> = match &heads.bounds {
        Some(bounds) => bounds.iter().map(Tensor::to_vec1).collect::<Result<_>>()?,
        None => heads
            .longest
            .iter()
            .map(|&longest| {
                (0..=heads.sequences)
                    .map(|at| (at * longest) as u32)
                    .collect()
            })
            .collect(),
    };
    for side in 0..2 {
        let bounds = &bounds[side];
        let longest = bounds.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert_eq!(bounds.len(), heads.sequences + 1);
        assert_eq!(bounds.last().map(|&end| end as usize), Some(rows[side]));
        assert_eq!(
            longest.map(|longest| longest as usize),
            Some(heads.longest[side])
        );
    }
    let width = value.dim(2)?;
    let (mut outs, mut sums) = (Vec::new(), Vec::new());
    for at in 0..heads.sequences {
        let own = |x: &Tensor, side: usize| {
            let (start, end) = (bounds[side][at] as usize, bounds[side][at + 1] as usize);
            // `[heads, items, width]`
            x.narrow(0, start, end - start)?
                .transpose(0, 1)?
                .contiguous()
        };
        let (query, key, value) = (own(query, 0)?, own(key, 1)?, own(value, 1)?);
        let (count, items) = (heads.heads, query.dim(1)?);
        if items == 0 {
            continue;
        }
        if key.dim(1)? == 0 {
            outs.push(Tensor::zeros(
                (items, count, width),
                query.dtype(),
                query.device(),
            )?);
            sums.push(Tensor::zeros(
                (count, items),
                query.dtype(),
                query.device(),
            )?);
            continue;
        }
        let scores = query
            .broadcast_matmul(&key.t()?)?
            .affine(heads.scale, 0.0)?;
        let shares = candle_nn::ops::softmax(&scores, D::Minus1)?;
        outs.push(
            shares
                .broadcast_matmul(&value)?
                .transpose(0, 1)?
                .contiguous()?,
        );
        sums.push(scores.log_sum_exp(D::Minus1)?);
    }
    Ok((Tensor::cat(&outs, 0)?, Tensor::cat(&sums, 1)?))
}

impl TokenKernels for Composed {
    fn norm(&self, norm: &Norm, x: &Tensor, gains: &[Tensor]) -> Result<Tensor> {
        norm.compose(&sample(x)?, gains)?.squeeze(0)
    }

    fn norm_gradient(
        &self,
        norm: &Norm,
        x: &Tensor,
        gains: &[Tensor],
        g: &Tensor,
        through: Option<&Tensor>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let (found, of_gains) = match gains {
            [] => {
                let [found] = gradients([x], g, |[x]| self.norm(norm, x, &[]))?;
                (found, None)
            }
            [one] => {
                let [found, of_gains] = gradients([x, one], g, |[x, gains]| {
                    self.norm(norm, x, std::slice::from_ref(gains))
                })?;
                (found, Some(of_gains.flatten_all()?))
            }
            [of_mv, of_s, ..] => {
                let [found, of_mv, of_s] = gradients([x, of_mv, of_s], g, |[x, mv, s]| {
                    self.norm(norm, x, &[mv.clone(), s.clone()])
                })?;
                let of_gains = Tensor::cat(&[of_mv.flatten_all()?, of_s], 0)?;
                (found, Some(of_gains))
            }
        };
        let found = through.map_or(Ok(found.clone()), |through| found + through)?;
        Ok((found, of_gains))
    }

    fn drop(&self, dropout: &Dropout, x: &Tensor, draw: &Draw) -> Result<Tensor> {
        dropout.compose(x, Some(draw))
    }

    fn gate(&self, gated: &Gated, x: &Tensor) -> Result<Tensor> {
        let blades = self.geometry.blades();
        gated.compose(blades, &sample(x)?)?.squeeze(0)
    }

    fn gate_gradient(&self, gated: &Gated, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let [found] = gradients([x], g, |[x]| self.gate(gated, x))?;
        Ok(found)
    }
}

impl ProductKernels for Composed {
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
}

impl HeadKernels for Composed {
    fn heads(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        widths: [usize; 2],
    ) -> Result<Vec<Tensor>> {
        features(attention, side, x, weights, widths)
    }

    fn heads_gradient(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        of_features: &[Tensor],
        widths: [usize; 2],
    ) -> Result<(Tensor, Option<Tensor>)> {
        let flat = |all: &[Tensor]| {
            let flat: Vec<Tensor> = all.iter().map(Tensor::flatten_all).collect::<Result<_>>()?;
            Tensor::cat(&flat, 0)
        };
        let g = flat(of_features)?;
        let Some(weights) = weights else {
            let output = |[x]: [&Tensor; 1]| flat(&features(attention, side, x, None, widths)?);
            let [of_x] = gradients([x], &g, output)?;
            return Ok((of_x, None));
        };
        let output = |[x, weights]: [&Tensor; 2]| {
            flat(&features(attention, side, x, Some(weights), widths)?)
        };
        let [of_x, of_weights] = gradients([x, weights], &g, output)?;
        // All of it is the share of the first row.
        let rows = x.dim(0)?;
        let of_weights = of_weights.flatten_all()?.unsqueeze(0)?;
        let of_weights = of_weights.pad_with_zeros(0, 0, rows - 1)?;
        Ok((of_x, (side == 0).then_some(of_weights)))
    }

    fn merge(&self, attention: &Attention, features: &Tensor, by_item: bool) -> Result<Tensor> {
        let features = match by_item {
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
        by_item: bool,
    ) -> Result<Tensor> {
        let zeros = Tensor::zeros(&features[..], g.dtype(), g.device())?;
        let [found] = gradients([&zeros], g, |[x]| self.merge(attention, x, by_item))?;
        Ok(found)
    }
}

impl AttentionKernels for Composed {
    fn attended_widths(&self, features: [usize; 2]) -> Option<[usize; 2]> {
        let widths = features.map(|count| count.next_multiple_of(ALIGNED));
        self.fused.then_some(widths)
    }

    fn attend(&self, heads: &Heads, parts: [&Tensor; 3]) -> Result<(Tensor, Tensor)> {
        attended(heads, parts)
    }

    fn attend_gradient(
        &self,
        heads: &Heads,
        [query, key, value, out]: [&Tensor; 4],
        log_sums: &Tensor,
        g: &Tensor,
    ) -> Result<[Tensor; 3]> {
        // Each head has keys of its own, or there is one for all.
        let own = |x: &Tensor| match heads.key_heads {
            1 => Ok(x.clone()),
            count => {
                let (rows, _, width) = x.dims3()?;
                x.broadcast_as((rows, count, width))?.contiguous()
            }
        };
        let given = [query, &own(key)?, &own(value)?];
        let (again, sums) = attended(heads, given)?;
        close(&again, out, "the result of attention that was kept");
        close(&sums, log_sums, "the logarithms that were kept");
        gradients(given, g, |parts| Ok(attended(heads, parts)?.0))
    }
}

impl SumKernels for Composed {
    fn pack(&self, from: &Tensor, places: &Tensor, factors: &Tensor) -> Result<Tensor> {
        let taken = from
            .flatten_all()?
            .index_select(&places.flatten_all()?, 0)?;
        (taken.reshape(factors.shape())? * factors)?.sum(0)
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
        let geometry = case.stages.geometry;
        for fused in [false, true] {
            let name = format!("{}, fused: {fused}", case.name);
            compare(&name, geometry, &inputs(&case), |arguments| {
                let kernels = Composed { geometry, fused };
                [
                    node::apply(&case.stages, arguments).unwrap(),
                    function::apply(&case.stages, kernels, arguments).unwrap(),
                ]
            });
        }
    }
}

#[test]
fn attention_to_another_set() {
    for case in cross_cases() {
        let geometry = case.crossing.attention.geometry;
        for fused in [false, true] {
            let name = format!("{}, fused: {fused}", case.name);
            compare(&name, geometry, &cross_inputs(&case), |arguments| {
                let kernels = Composed { geometry, fused };
                [
                    node::apply(&case.crossing, arguments).unwrap(),
                    cross::apply(&case.crossing, kernels, arguments).unwrap(),
                ]
            });
        }
    }
}
