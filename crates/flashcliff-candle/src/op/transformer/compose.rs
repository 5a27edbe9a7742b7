//! Stages of candle's operations and nodes of the core's operators, for tensors on GPUs that [`super::gpu`] has no kernels for. Tests run them on
//! the CPU too.
//!
//! Linear layers are one product with a dense matrix, which is made of the parameters and of the entries of the maps. Nothing is copied from
//! the host after the first call on a device, so that a step can be captured.

use std::sync::Arc;

use candle_core::{D, Result, Tensor};
use flashcliff::cayley::Group;

use super::attention::{Attention, Place};
use super::constants::constant;
use super::features::{DISTANCE, EPS, INNER, POINT, Part};
use super::function::Stages;
use super::gate::Gated;
use super::linear::Linear;
use super::norm::{self, Norm};
use super::product::Products;
use super::stage::Stage;
use super::{BLADES, Channels, algebra};
use crate::Error;
use crate::op::gpu::OnGpu;
use crate::op::node::{self, Argument};

impl OnGpu for Stages {
    fn apply_on_gpu(
        self: &Arc<Self>,
        arguments: &[Argument],
    ) -> std::result::Result<Tensor, Error> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = super::gpu::Cuda::serving(arguments)? {
            return super::gpu::apply(self, kernels, arguments);
        }
        let shapes: Vec<&[usize]> = arguments.iter().map(Argument::shape).collect();
        self.check(&shapes)?;
        let x = arguments[0].seen()?;
        let reference = match self.has_joins {
            true => Some(arguments[1].seen()?),
            false => None,
        };
        let parameters = arguments[self.first_parameter()..].iter();
        let parameters = parameters.map(Argument::seen).collect::<Result<Vec<_>>>()?;
        Ok(compose(&self.stages, x, &parameters, reference.as_ref())?)
    }
}

fn compose(
    stages: &[Stage],
    x: Tensor,
    parameters: &[Tensor],
    reference: Option<&Tensor>,
) -> Result<Tensor> {
    let (mut x, mut rest) = (x, parameters);
    for stage in stages {
        let (own, others) = rest.split_at(stage.shapes().len());
        rest = others;
        x = match stage {
            Stage::Linear(stage) => stage.compose(&x, own)?,
            Stage::Norm(stage) => stage.compose(&x)?,
            Stage::Gated(stage) => stage.compose(&x)?,
            Stage::Products(stage) => stage.compose(&x, reference)?,
            Stage::Attention(stage) => stage.compose(&x, &own[0])?,
            Stage::Residual(stages) => (&x + compose(stages, x.clone(), own, reference)?)?,
        };
    }
    Ok(x)
}

/// The multivectors `[samples, items, blades, channels]` and the scalars `[samples, items, channels]`.
fn split(channels: Channels, x: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let (samples, items, _) = x.dims3()?;
    let mv = BLADES * channels.multivectors;
    let multivectors = x.narrow(D::Minus1, 0, mv)?.contiguous()?;
    let multivectors = multivectors.reshape((samples, items, BLADES, channels.multivectors))?;
    let scalars = match channels.scalars {
        0 => None,
        s => Some(x.narrow(D::Minus1, mv, s)?),
    };
    Ok((multivectors, scalars))
}

fn join(multivectors: &Tensor, scalars: Option<&Tensor>) -> Result<Tensor> {
    let (samples, items, blades, channels) = multivectors.dims4()?;
    let flat = multivectors.contiguous()?;
    let flat = flat.reshape((samples, items, blades * channels))?;
    match scalars {
        None => Ok(flat),
        Some(scalars) => Tensor::cat(&[&flat, &scalars.contiguous()?], D::Minus1),
    }
}

/// The larger of a tensor and a number: `relu(x - least) + least` would round.
fn at_least(x: &Tensor, least: f64) -> Result<Tensor> {
    let bound = x.zeros_like()?.affine(0.0, least)?.detach();
    x.ge(&bound)?.where_cond(x, &bound)
}

impl Linear {
    fn compose(&self, x: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
        let mut matrices = Vec::new();
        let mut biases = Vec::new();
        for (out, range) in self.ranges() {
            let (matrix, bias) = self.dense(out, &parameters[range])?;
            matrices.push((out, matrix));
            biases.push(bias);
        }
        let (samples, items, width) = x.dims3()?;
        let rows = x.reshape((samples * items, width))?;
        let (mut of_mv, mut of_s) = (Vec::new(), Vec::new());
        for ((out, matrix), bias) in matrices.iter().zip(&biases) {
            let made = rows.matmul(matrix)?.broadcast_add(bias)?;
            let made = made.reshape((samples, items, out.width()))?;
            let (mv, s) = split(*out, &made)?;
            of_mv.push(mv);
            of_s.extend(s);
        }
        let mv = Tensor::cat(&of_mv, D::Minus1)?;
        if self.keeps_scalars {
            let (_, scalars) = split(self.input, x)?;
            return join(&mv, scalars.as_ref());
        }
        let scalars = match of_s.len() {
            0 => None,
            _ => Some(Tensor::cat(&of_s, D::Minus1)?),
        };
        join(&mv, scalars.as_ref())
    }

    /// The matrix `[in, out]` of a layer, and its bias `[out]`.
    fn dense(&self, out: Channels, parameters: &[Tensor]) -> Result<(Tensor, Tensor)> {
        let (mv, s) = (self.input.multivectors, self.input.scalars);
        let mut rest = parameters.iter();
        let mut next = || {
            rest.next().ok_or_else(|| {
                candle_core::Error::Msg("expected more parameters of a linear layer".to_owned())
            })
        };
        let weight = next()?;
        let maps = self.core.maps();
        let entries = constant("entries of maps", || entries(maps), weight)?;
        let entries = entries.reshape((maps, BLADES * BLADES))?;
        let of_blades = weight
            .contiguous()?
            .reshape((out.multivectors * mv, maps))?
            .matmul(&entries)?
            .reshape((out.multivectors, mv, BLADES, BLADES))?
            // From [out, in, to, from] to [from, in, to, out].
            .permute((3, 1, 2, 0))?
            .contiguous()?
            .reshape((BLADES * mv, BLADES * out.multivectors))?;
        let others = (BLADES - 1) * out.multivectors;
        let (mut rows, blade_bias) = match s {
            0 => (vec![of_blades], next()?.flatten_all()?),
            _ => {
                let to_blades = next()?.t()?.contiguous()?.pad_with_zeros(1, 0, others)?;
                (vec![of_blades, to_blades], next()?.clone())
            }
        };
        let mut bias = blade_bias.pad_with_zeros(0, 0, others)?;
        if out.scalars > 0 {
            let of_scalar_blade = next()?.t()?.contiguous()?;
            let of_blades = of_scalar_blade.pad_with_zeros(0, 0, (BLADES - 1) * mv)?;
            bias = Tensor::cat(&[&bias, next()?], 0)?;
            rows[0] = Tensor::cat(&[&rows[0], &of_blades], 1)?;
            if s > 0 {
                rows[1] = Tensor::cat(&[&rows[1], &next()?.t()?.contiguous()?], 1)?;
            }
        }
        Ok((Tensor::cat(&rows, 0)?, bias))
    }
}

/// The matrices of all maps, `[maps, to, from]`, each divided by its norm.
fn entries(count: usize) -> Result<Vec<f64>> {
    let maps = algebra()?.cayley().equivariant_maps(Group::Pin);
    let maps = maps.map_err(|error| Error::from(flashcliff::Error::from(error)))?;
    let mut all = vec![0.0; count * BLADES * BLADES];
    for (map, matrix) in maps.iter().zip(all.chunks_exact_mut(BLADES * BLADES)) {
        let norm = (map.entries.len() as f64).sqrt();
        for entry in &map.entries {
            matrix[entry.output * BLADES + entry.input] = f64::from(entry.sign) / norm;
        }
    }
    Ok(all)
}

impl Norm {
    pub(super) fn compose(&self, x: &Tensor) -> Result<Tensor> {
        let (mv, s) = split(self.channels, x)?;
        let counted = || {
            let algebra = algebra()?;
            let square = |blade| f64::from(algebra.cayley().square_of_blade_norm(blade));
            Ok((0..BLADES).map(square).collect())
        };
        let counted = constant("squares of blades", counted, x)?.reshape((BLADES, 1))?;
        let squares = mv.sqr()?.broadcast_mul(&counted)?.sum_keepdim(2)?;
        let mean = squares.mean_keepdim(3)?;
        let mv = mv.broadcast_div(&at_least(&mean, norm::EPS)?.sqrt()?)?;
        let s = match s {
            None => None,
            Some(s) => {
                let centred = s.broadcast_sub(&s.mean_keepdim(D::Minus1)?)?;
                let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
                let deviation = variance.affine(1.0, norm::SCALAR_EPS)?.sqrt()?;
                Some(centred.broadcast_div(&deviation)?)
            }
        };
        join(&mv, s.as_ref())
    }
}

impl Gated {
    pub(super) fn compose(&self, x: &Tensor) -> Result<Tensor> {
        let (mv, s) = split(self.channels, x)?;
        let scalar = mv.narrow(2, 0, 1)?.contiguous()?;
        let inner = (scalar.sqr()?.affine(0.044715, 1.0)? * &scalar)?;
        let inner = inner.affine((2.0 / std::f64::consts::PI).sqrt(), 0.0)?;
        let gate = (inner.tanh()?.affine(0.5, 0.5)? * &scalar)?;
        let s = s.map(|s| gelu(&s.contiguous()?)).transpose()?;
        join(&mv.broadcast_mul(&gate)?, s.as_ref())
    }
}

/// `x (1 + erf(x / sqrt 2)) / 2`. The gradient of candle's own function has a constant of six digits.
fn gelu(x: &Tensor) -> Result<Tensor> {
    let erf = x.affine(std::f64::consts::FRAC_1_SQRT_2, 0.0)?.erf()?;
    x * erf.affine(0.5, 0.5)?
}

impl Products {
    fn compose(&self, x: &Tensor, reference: Option<&Tensor>) -> Result<Tensor> {
        let (mv, s) = split(self.input(), x)?;
        let (samples, items, _, _) = mv.dims4()?;
        let factor = |index: usize| {
            let factor = mv.narrow(3, index * self.each, self.each)?;
            let factor = factor.permute((2, 0, 1, 3))?.contiguous()?;
            factor.reshape((BLADES, samples * items, self.each))
        };
        let product = |operator: &flashcliff::Operator, first: usize| {
            let (left, right) = (factor(first)?, factor(first + 1)?);
            let arguments = [Argument::whole(&left), Argument::whole(&right)];
            let made = node::apply(&Arc::new(operator.clone()), &arguments)?;
            let made = made.reshape((BLADES, samples, items, self.each))?;
            made.permute((1, 2, 0, 3))?.contiguous()
        };
        let geometric = product(&self.geometric, 0)?;
        let signs =
            constant("signs of joins", || Ok(self.signs.clone()), x)?.reshape((BLADES, 1))?;
        let mut joins = product(&self.regressive, 2)?.broadcast_mul(&signs)?;
        if let Some(reference) = reference {
            joins = joins.broadcast_mul(&reference.reshape((samples, items, 1, 1))?)?;
        }
        join(&Tensor::cat(&[&geometric, &joins], 3)?, s.as_ref())
    }
}

impl Attention {
    fn compose(&self, x: &Tensor, log_weights: &Tensor) -> Result<Tensor> {
        let weights = log_weights.exp()?.squeeze(1)?;
        let [query, key, value] = self
            .places()
            .map(|place| self.features(&place, x, &weights));
        let (query, key, value) = (query?, key?, value?);
        let (samples, heads, items, features) = query.dims4()?;
        let width = value.dim(D::Minus1)?;
        // Heads that share keys are more queries of one group.
        let groups = if self.shared {
            samples
        } else {
            samples * heads
        };
        let queries = samples * heads * items / groups.max(1);
        let query = query.reshape((groups, queries, features))?;
        let key = key.reshape((groups, items, features))?;
        let value = value.reshape((groups, items, width))?;
        let scores = query.matmul(&key.t()?.contiguous()?)?;
        let scores = scores.affine(self.scale(), 0.0)?;
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let out = weights.matmul(&value)?;
        let out = out.reshape((samples, heads, items, width))?;
        let mv = out
            .narrow(3, 0, BLADES * self.head.multivectors)?
            .contiguous()?;
        let mv = mv
            .reshape((samples, heads, items, self.head.multivectors, BLADES))?
            .permute((0, 2, 4, 1, 3))?
            .contiguous()?
            .reshape((samples, items, BLADES, heads * self.head.multivectors))?;
        let s = match self.head.scalars {
            0 => None,
            scalars => {
                let s = out.narrow(3, BLADES * self.head.multivectors, scalars)?;
                let s = s.permute((0, 2, 1, 3))?.contiguous()?;
                Some(s.reshape((samples, items, heads * scalars))?)
            }
        };
        join(&mv, s.as_ref())
    }

    /// The features of a part, `[samples, heads, items, features]`. `weights` are `[heads, channels]`.
    pub(super) fn features(&self, place: &Place, x: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let (mv, s) = split(self.input(), x)?;
        let (samples, items, _, _) = mv.dims4()?;
        let (heads, channels) = (place.heads, self.head.multivectors);
        let mv = mv
            .narrow(3, place.first.multivectors, channels * heads)?
            .contiguous()?
            .reshape((samples, items, BLADES, channels, heads))?
            .permute((0, 4, 1, 3, 2))?
            .contiguous()?;
        let mut parts = match place.part {
            Part::Value => vec![flat(&mv)?],
            _ => {
                let blade = |blade: usize| mv.narrow(4, blade, 1);
                let inner: Vec<Tensor> = INNER.into_iter().map(blade).collect::<Result<_>>()?;
                let point: Vec<Tensor> = POINT.into_iter().map(blade).collect::<Result<_>>()?;
                let inner = Tensor::cat(&inner, 4)?;
                let weights = (place.part == Part::Query).then_some(weights);
                vec![flat(&inner)?, flat(&distances(&point, weights)?)?]
            }
        };
        if let (Some(s), scalars @ 1..) = (s, self.head.scalars) {
            let s = s
                .narrow(2, place.first.scalars, scalars * heads)?
                .contiguous()?;
            let s = s.reshape((samples, items, scalars, heads))?;
            parts.push(s.permute((0, 3, 1, 2))?.contiguous()?);
        }
        Tensor::cat(&parts, 3)
    }
}

/// `[samples, heads, items, channels, n]` with the last two axes as one.
fn flat(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.flatten_from(3)
}

/// The distance features of points `[samples, heads, items, channels, 1]`, as `Head::write` has them.
fn distances(point: &[Tensor], weights: Option<&Tensor>) -> Result<Tensor> {
    let w = &point[3];
    let factor = (w / w.sqr()?.affine(1.0, EPS)?)?;
    let weighed: Vec<Tensor> = point.iter().map(|t| t * &factor).collect::<Result<_>>()?;
    let weight = weighed[3].sqr()?;
    let square = ((weighed[0].sqr()? + weighed[1].sqr()?)? + weighed[2].sqr()?)?;
    let products = weighed[..3].iter().map(|p| p * &weighed[3]);
    let mut features: Vec<Tensor> = products.collect::<Result<_>>()?;
    let Some(weights) = weights else {
        features.extend([square, weight]);
        return Tensor::cat(&features, 4);
    };
    for product in &mut features {
        *product = product.affine(2.0, 0.0)?;
    }
    features.extend([weight.neg()?, square.neg()?]);
    let (heads, channels) = weights.dims2()?;
    let features = Tensor::cat(&features, 4)?;
    debug_assert_eq!(features.dims()[4], DISTANCE);
    features.broadcast_mul(&weights.reshape((1, heads, 1, channels, 1))?)
}

#[cfg(test)]
mod tests;
