//! Stages of candle's operations and nodes of the core's operators, for tensors on GPUs that [`super::gpu`] has no kernels for. Tests run them on
//! the CPU too. `attention` has those of attention.
//!
//! Linear layers are one product with a dense matrix, which is made of the parameters and of the entries of the maps. Nothing is copied from
//! the host after the first call on a device, so that a step can be captured.

use std::sync::Arc;

use candle_core::{D, Result, Tensor};

use super::Channels;
use super::constants::{constant, indices};
use super::function::Stages;
use super::gains::Gains;
use super::gate::Gated;
use super::geometry::Geometry;
use super::linear::{Kind, Linear};
use super::norm::{self, Norm};
use super::product::Products;
use super::rotary::Way;
use super::stage::Stage;
use crate::Error;
use crate::op::gpu::OnGpu;
use crate::op::node::{self, Argument};

mod attention;

impl OnGpu for Stages {
    fn apply_on_gpu(
        self: &Arc<Self>,
        arguments: &[Argument],
    ) -> std::result::Result<Tensor, Error> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = super::gpu::Cuda::serving(&self.geometry, arguments)? {
            return super::gpu::apply(self, kernels, arguments);
        }
        let shapes: Vec<&[usize]> = arguments.iter().map(Argument::shape).collect();
        self.check(&shapes)?;
        let x = arguments[0].seen()?;
        let reference = match self.has_joins {
            true => Some(arguments[1].seen()?),
            false => None,
        };
        let mask = self.mask_input().map(|at| arguments[at].seen());
        let extra = self.extra_input().map(|at| arguments[at].seen());
        let around = Around {
            stages: self,
            reference,
            mask: mask.transpose()?,
            extra: extra.transpose()?,
        };
        let parameters = arguments[self.first_parameter()..].iter();
        let parameters = parameters.map(Argument::seen).collect::<Result<Vec<_>>>()?;
        Ok(compose(&self.stages, x, &parameters, &around)?)
    }
}

/// The needs of all stages besides their input and parameters.
struct Around<'a> {
    stages: &'a Stages,
    reference: Option<Tensor>,
    mask: Option<Tensor>,
    extra: Option<Tensor>,
}

impl Around<'_> {
    fn extra(&self) -> Result<&Tensor> {
        let missing = || candle_core::Error::Msg("expected extra tokens, got none".to_owned());
        self.extra.as_ref().ok_or_else(missing)
    }
}

fn compose(
    stages: &[Stage],
    x: Tensor,
    parameters: &[Tensor],
    around: &Around<'_>,
) -> Result<Tensor> {
    let (mut x, mut rest) = (x, parameters);
    for stage in stages {
        let (own, others) = rest.split_at(stage.shapes().len());
        rest = others;
        x = match stage {
            Stage::Linear(stage) => stage.compose(&x, own)?,
            Stage::Norm(stage) => stage.compose(&x, own)?,
            Stage::Gains(stage) => stage.compose(&x, own)?,
            Stage::Rotary(stage) => stage.turned(&x, Way::Forth)?,
            Stage::Reinserted(stage) => stage.compose(&x, around.extra()?)?,
            Stage::Dropout(stage) => stage.compose(&x, around.stages.draw.as_ref())?,
            Stage::Gated(stage) => stage.compose(around.stages.geometry.blades(), &x)?,
            Stage::Products(stage) => stage.compose(&x, around.reference.as_ref())?,
            Stage::Attention(stage) => {
                let around = attention::Around::of(&around.stages.scope, around.mask.as_ref());
                stage.compose(&[&x], own.first(), &around)?
            }
            Stage::Residual(stages) => (&x + compose(stages, x.clone(), own, around)?)?,
        };
    }
    Ok(x)
}

/// The multivectors `[samples, items, blades, channels]` and the scalars `[samples, items, channels]`.
fn split(blades: usize, channels: Channels, x: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let (samples, items, _) = x.dims3()?;
    let mv = blades * channels.multivectors;
    let multivectors = x.narrow(D::Minus1, 0, mv)?.contiguous()?;
    let multivectors = multivectors.reshape((samples, items, blades, channels.multivectors))?;
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
            let made = made.reshape((samples, items, self.geometry.width(*out)))?;
            let (mv, s) = split(self.geometry.blades(), *out, &made)?;
            of_mv.push(mv);
            of_s.extend(s);
        }
        let mv = Tensor::cat(&of_mv, D::Minus1)?;
        if self.keeps_scalars {
            let (_, scalars) = split(self.geometry.blades(), self.input, x)?;
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
        let (maps, blades) = (self.core.maps(), self.geometry.blades());
        let name = format!("entries of maps of {:?}", self.geometry);
        let entries = constant(&name, || entries(&self.geometry), weight)?;
        let entries = entries.reshape((maps, blades * blades))?;
        let of_blades = weight
            .contiguous()?
            .reshape((out.multivectors * mv, maps))?
            .matmul(&entries)?
            .reshape((out.multivectors, mv, blades, blades))?
            // From [out, in, to, from] to [from, in, to, out].
            .permute((3, 1, 2, 0))?
            .contiguous()?
            .reshape((blades * mv, blades * out.multivectors))?;
        let mut rows = vec![of_blades];
        if s > 0 {
            let to_blades = next()?.t()?.contiguous()?;
            rows.push(self.spread(Kind::ScalarsToBlades, &to_blades, 1)?);
        }
        let blade_bias = next()?.flatten_all()?;
        let mut bias = self.spread(Kind::BladeBias, &blade_bias, 0)?;
        if out.scalars > 0 {
            let of_invariant = next()?.t()?.contiguous()?;
            let of_blades = self.spread(Kind::BladesToScalars, &of_invariant, 0)?;
            bias = Tensor::cat(&[&bias, next()?], 0)?;
            rows[0] = Tensor::cat(&[&rows[0], &of_blades], 1)?;
            if s > 0 {
                rows[1] = Tensor::cat(&[&rows[1], &next()?.t()?.contiguous()?], 1)?;
            }
        }
        Ok((Tensor::cat(&rows, 0)?, bias))
    }

    /// Spreads an axis of channels, with the blades of a kind of parameter innermost, to one of all blades and their channels, with zeros for the
    /// other blades.
    fn spread(&self, kind: Kind, x: &Tensor, axis: usize) -> Result<Tensor> {
        let (blades, own) = (self.geometry.blades(), self.blades_of(kind));
        let channels = x.dims()[axis] / own.len();
        let mut shape = x.dims().to_vec();
        shape[axis] = channels;
        shape.insert(axis + 1, own.len());
        let x = x.reshape(shape)?;
        let mut parts = Vec::new();
        let mut next = 0;
        for (at, &blade) in own.iter().enumerate() {
            let part = x.narrow(axis + 1, at, 1)?.squeeze(axis + 1)?.contiguous()?;
            parts.push(part.pad_with_zeros(axis, (blade - next) * channels, 0)?);
            next = blade + 1;
        }
        let spread = Tensor::cat(&parts, axis)?;
        spread.pad_with_zeros(axis, 0, (blades - next) * channels)
    }
}

/// The matrices of all maps, `[maps, to, from]`, as a layer takes them.
fn entries(geometry: &Geometry) -> Result<Vec<f64>> {
    let (maps, blades) = (geometry.maps()?, geometry.blades());
    let mut all = vec![0.0; maps.len() * blades * blades];
    for (map, matrix) in maps.iter().zip(all.chunks_exact_mut(blades * blades)) {
        for entry in &map.entries {
            matrix[entry.output * blades + entry.input] =
                f64::from(entry.sign) * geometry.scale_of(map);
        }
    }
    Ok(all)
}

/// The sum over grades of the magnitudes of squared norms, for multivectors `[samples, items, blades, ..]`; the axis of blades is 1 then.
fn magnitudes(geometry: &Geometry, mv: &Tensor) -> Result<Tensor> {
    let norms = geometry.norms();
    let name = format!("squared norms of blades of {}", geometry.algebra.name());
    let counted = || Ok(norms.iter().map(|&norm| f64::from(norm)).collect());
    let mut shape = vec![1; mv.rank()];
    shape[2] = norms.len();
    let counted = constant(&name, counted, mv)?.reshape(shape)?;
    let squares = mv.sqr()?.broadcast_mul(&counted)?;
    if norms.iter().all(|&norm| norm >= 0) {
        return squares.sum_keepdim(2);
    }
    let cayley = geometry.algebra.cayley();
    let mut sum: Option<Tensor> = None;
    for grade in 0..cayley.grade_count() {
        let range = cayley.grade_range(grade);
        if norms[range.clone()].iter().all(|&norm| norm == 0) {
            continue;
        }
        let of_grade = squares.narrow(2, range.start, range.len())?.contiguous()?;
        let magnitude = of_grade.sum_keepdim(2)?.abs()?;
        sum = Some(match sum {
            None => magnitude,
            Some(sum) => (sum + magnitude)?,
        });
    }
    sum.map_or_else(|| squares.sum_keepdim(2)?.zeros_like(), Ok)
}

/// Multivectors `[samples, items, blades, channels, ..]` over the root of the mean of their norms over channels.
fn normed(geometry: &Geometry, mv: &Tensor) -> Result<Tensor> {
    let mean = magnitudes(geometry, mv)?.mean_keepdim(3)?;
    mv.broadcast_div(&at_least(&mean, norm::EPS)?.sqrt()?)
}

/// The layer norm of an axis of scalars.
fn standardised(s: &Tensor, axis: usize) -> Result<Tensor> {
    let centred = s.broadcast_sub(&s.mean_keepdim(axis)?)?;
    let variance = centred.sqr()?.mean_keepdim(axis)?;
    let deviation = variance.affine(1.0, norm::SCALAR_EPS)?.sqrt()?;
    centred.broadcast_div(&deviation)
}

impl Norm {
    pub(super) fn compose(&self, x: &Tensor, gains: &[Tensor]) -> Result<Tensor> {
        let (mv, s) = split(self.geometry.blades(), self.channels, x)?;
        let mv = normed(&self.geometry, &mv)?;
        let s = s.map(|s| standardised(&s, 2)).transpose()?;
        let normalised = join(&mv, s.as_ref())?;
        match &self.gains {
            Some(of) => of.compose(&normalised, gains),
            None => Ok(normalised),
        }
    }
}

impl Gains {
    fn compose(&self, x: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
        let flat = parameters.iter().map(Tensor::flatten_all);
        let all = Tensor::cat(&flat.collect::<Result<Vec<_>>>()?, 0)?;
        let sources = || {
            let places = self.sources().into_iter();
            places
                .map(|at| u32::try_from(at).map_err(candle_core::Error::wrap))
                .collect()
        };
        let sources = indices(&format!("sources, {self:?}"), sources, x)?;
        x.broadcast_mul(&all.index_select(&sources, 0)?)
    }
}

impl Gated {
    pub(super) fn compose(&self, blades: usize, x: &Tensor) -> Result<Tensor> {
        let (mv, s) = split(blades, self.channels, x)?;
        let scalar = mv.narrow(2, 0, 1)?.contiguous()?;
        let gate = gelu_tanh(&scalar)?;
        let of_scalars = if self.tanh_scalars { gelu_tanh } else { gelu };
        let s = s.map(|s| of_scalars(&s.contiguous()?)).transpose()?;
        join(&mv.broadcast_mul(&gate)?, s.as_ref())
    }
}

/// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    let inner = (x.sqr()?.affine(0.044715, 1.0)? * x)?;
    let inner = inner.affine((2.0 / std::f64::consts::PI).sqrt(), 0.0)?;
    inner.tanh()?.affine(0.5, 0.5)? * x
}

/// `x (1 + erf(x / sqrt 2)) / 2`. The gradient of candle's own function has a constant of six digits.
fn gelu(x: &Tensor) -> Result<Tensor> {
    let erf = x.affine(std::f64::consts::FRAC_1_SQRT_2, 0.0)?.erf()?;
    x * erf.affine(0.5, 0.5)?
}

impl Products {
    fn compose(&self, x: &Tensor, reference: Option<&Tensor>) -> Result<Tensor> {
        let blades = self.blades;
        let (mv, s) = split(blades, self.input(), x)?;
        let (samples, items, _, _) = mv.dims4()?;
        let factor = |index: usize| {
            let factor = mv.narrow(3, index * self.each, self.each)?;
            let factor = factor.permute((2, 0, 1, 3))?.contiguous()?;
            factor.reshape((blades, samples * items, self.each))
        };
        let product = |operator: &flashcliff::Operator, first: usize| {
            let (left, right) = (factor(first)?, factor(first + 1)?);
            let arguments = [Argument::whole(&left), Argument::whole(&right)];
            let made = node::apply(&Arc::new(operator.clone()), &arguments)?;
            let made = made.reshape((blades, samples, items, self.each))?;
            made.permute((1, 2, 0, 3))?.contiguous()
        };
        let mut geometric = product(&self.geometric, 0)?;
        if !self.dropped.is_empty() {
            let name = format!("all of {blades} blades but {:?}", self.dropped);
            let kept = || Ok((0..blades).map(|blade| self.kept(blade)).collect());
            let kept = constant(&name, kept, x)?.reshape((blades, 1))?;
            geometric = geometric.broadcast_mul(&kept)?;
        }
        let Some(regressive) = &self.regressive else {
            return join(&geometric, s.as_ref());
        };
        let signs = format!("signs of joins of {blades} blades");
        let signs = constant(&signs, || Ok(self.signs.clone()), x)?.reshape((blades, 1))?;
        let mut joins = product(regressive, 2)?.broadcast_mul(&signs)?;
        if let Some(reference) = reference {
            joins = joins.broadcast_mul(&reference.reshape((samples, items, 1, 1))?)?;
        }
        join(&Tensor::cat(&[&geometric, &joins], 3)?, s.as_ref())
    }
}

#[cfg(test)]
mod tests;
