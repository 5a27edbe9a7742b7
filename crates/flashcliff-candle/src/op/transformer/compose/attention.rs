//! Attention of candle's operations. It keeps all scores, and a ragged batch is padded to its longest sequence.

use candle_core::{D, Result, Tensor};

use super::{join, normed, split, standardised};
use crate::op::transformer::attention::{Attention, Place};
use crate::op::transformer::constants::constant;
use crate::op::transformer::cross::Crossing;
use crate::op::transformer::features::{EPS, Part, Points};
use crate::op::transformer::scope::{Scope, seen};
use crate::op::transformer::sequences::{Padding, Sequences};

/// Whom items attend to.
pub(in crate::op::transformer) struct Around<'a> {
    /// Sequences of queries and of keys in ragged batches.
    sequences: Option<[&'a Sequences; 2]>,
    mask: Option<&'a Tensor>,
}

impl<'a> Around<'a> {
    pub(in crate::op::transformer) fn of(scope: &'a Scope, mask: Option<&'a Tensor>) -> Self {
        let sequences = match scope {
            Scope::Within(all) => Some([all, all]),
            Scope::Between(queries, keys) => Some([queries, keys]),
            _ => None,
        };
        Self { sequences, mask }
    }
}

impl Crossing {
    /// `tensors` are all inputs.
    pub(in crate::op::transformer) fn compose(&self, tensors: &[Tensor]) -> Result<Tensor> {
        let masks = usize::from(self.has_mask());
        let around = Around::of(&self.scope, tensors[2..2 + masks].first());
        let sides = [&tensors[0], &tensors[1]];
        self.attention
            .compose(&sides, tensors[2 + masks..].first(), &around)
    }
}

impl Attention {
    /// Attention of inputs, as many as there are sides.
    pub(super) fn compose(
        &self,
        sides: &[&Tensor],
        log_weights: Option<&Tensor>,
        around: &Around<'_>,
    ) -> Result<Tensor> {
        let (first, last) = (sides[0], sides[sides.len() - 1]);
        let (of_samples, of_items, _) = first.dims3()?;
        if first.elem_count() == 0 || last.elem_count() == 0 {
            let shape = (of_samples, of_items, self.geometry.width(self.output()));
            return Tensor::zeros(shape, first.dtype(), first.device());
        }
        let weights = log_weights.map(|weights| weights.exp()?.squeeze(1));
        let weights = weights.transpose()?;
        let features = |side: usize| -> Result<Vec<Tensor>> {
            let places = self.places_of(side).into_iter();
            let features = places.map(|place| self.features(&place, sides[side], weights.as_ref()));
            let padding = around.sequences.map(|of| of[side].padding(sides[side]));
            let padding = padding.transpose()?;
            features
                .map(|features| pad_heads(&features?, padding.as_deref()))
                .collect()
        };
        let mut parts = features(0)?;
        if sides.len() > 1 {
            parts.extend(features(1)?);
        }
        let [query, key, value] = <[Tensor; 3]>::try_from(parts)
            .map_err(|_| candle_core::Error::Msg("attention: expected three parts".to_owned()))?;
        let paddings = match around.sequences {
            None => None,
            Some([queries, keys]) => Some((queries.padding(first)?, keys.padding(last)?)),
        };
        let mask = match &paddings {
            Some((_, keys)) => Some(&keys.mask),
            None => around.mask,
        };
        let mut out = self.weighed(&query, &key, &value, mask)?;
        if let Some((queries, _)) = &paddings {
            // From `[samples, heads, items, width]` to `[1, heads, rows, width]`.
            let (samples, heads, items, width) = out.dims4()?;
            let flat = out.transpose(1, 2)?.contiguous()?;
            let flat = queries.unpad(&flat.reshape((samples * items, heads, width))?)?;
            out = flat.transpose(0, 1)?.contiguous()?.unsqueeze(0)?;
        }
        self.merge_heads(&out)
    }

    /// The means of values `[samples, heads, items, width]` by the softmax of scores.
    fn weighed(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (samples, heads, items, features) = query.dims4()?;
        let (_, _, keys, width) = value.dims4()?;
        // Heads that share keys are more queries of one group.
        let groups = if self.shared {
            samples
        } else {
            samples * heads
        };
        let queries = samples * heads * items / groups.max(1);
        let query = query.reshape((groups, queries, features))?;
        let key = key.reshape((groups, keys, features))?;
        let value = value.reshape((groups, keys, width))?;
        let scores = query.matmul(&key.t()?.contiguous()?)?;
        let mut scores = scores.affine(self.scale(), 0.0)?;
        let mask = mask.map(seen).transpose()?;
        if let Some((added, _)) = &mask {
            let of_heads = scores.reshape((samples, heads, items, keys))?;
            scores = of_heads.broadcast_add(added)?.reshape(scores.shape())?;
        }
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let out = weights.matmul(&value)?;
        let out = out.reshape((samples, heads, items, width))?;
        match &mask {
            Some((_, shown)) => out.broadcast_mul(shown),
            None => Ok(out),
        }
    }

    /// Attended values `[samples, heads, items, width]` as tokens.
    fn merge_heads(&self, out: &Tensor) -> Result<Tensor> {
        let (samples, heads, items, _) = out.dims4()?;
        let (blades, channels) = (self.head.blades, self.head.multivectors);
        let mv = out.narrow(3, 0, blades * channels)?.contiguous()?;
        let mv = mv
            .reshape((samples, heads, items, channels, blades))?
            .permute((0, 2, 4, 1, 3))?
            .contiguous()?
            .reshape((samples, items, blades, heads * channels))?;
        let s = match self.head.scalars {
            0 => None,
            scalars => {
                let s = out.narrow(3, blades * channels, scalars)?;
                let s = s.permute((0, 2, 1, 3))?.contiguous()?;
                Some(s.reshape((samples, items, heads * scalars))?)
            }
        };
        join(&mv, s.as_ref())
    }

    /// The features of a part, `[samples, heads, items, features]`. `weights` of distances are `[heads, channels]`.
    pub(in crate::op::transformer) fn features(
        &self,
        place: &Place,
        x: &Tensor,
        weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (blades, input) = (self.head.blades, self.sides()[place.side]);
        let (mv, s) = split(blades, input, x)?;
        let (samples, items, _, _) = mv.dims4()?;
        let (heads, channels) = (place.heads, self.head.multivectors);
        let mut mv = mv
            .narrow(3, place.first.multivectors, channels * heads)?
            .contiguous()?
            .reshape((samples, items, blades, channels, heads))?;
        if self.geometry.head_norm {
            mv = normed(&self.geometry, &mv)?;
        }
        let mv = mv.permute((0, 4, 1, 3, 2))?.contiguous()?;
        let mut parts = match place.part {
            Part::Value => vec![flat(&mv)?],
            part => {
                let blade = |&(blade, _): &(usize, f64)| mv.narrow(4, blade, 1);
                let inner: Vec<Tensor> =
                    self.head.inner.iter().map(blade).collect::<Result<_>>()?;
                let mut inner = Tensor::cat(&inner, 4)?;
                if part == Part::Query && self.head.inner.iter().any(|&(_, sign)| sign < 0.0) {
                    let signs = || Ok(self.head.inner.iter().map(|&(_, sign)| sign).collect());
                    let name = format!("signs of features of {:?}", self.geometry);
                    inner = inner.broadcast_mul(&constant(&name, signs, x)?)?;
                }
                let mut parts = vec![flat(&inner)?];
                if let Some(points) = self.head.points {
                    let weights = weights.filter(|_| part == Part::Query);
                    parts.push(flat(&distances(points, &mv, weights)?)?);
                }
                parts
            }
        };
        if let (Some(s), scalars @ 1..) = (s, self.head.scalars) {
            let s = s
                .narrow(2, place.first.scalars, scalars * heads)?
                .contiguous()?;
            let mut s = s.reshape((samples, items, scalars, heads))?;
            if self.geometry.head_norm {
                s = standardised(&s, 2)?;
            }
            parts.push(s.permute((0, 3, 1, 2))?.contiguous()?);
        }
        Tensor::cat(&parts, 3)
    }
}

/// Features `[1, heads, rows, features]` of a ragged batch as `[samples, heads, items, features]`.
fn pad_heads(features: &Tensor, padding: Option<&Padding>) -> Result<Tensor> {
    let Some(padding) = padding else {
        return Ok(features.clone());
    };
    let (_, heads, _, width) = features.dims4()?;
    let rows = features.squeeze(0)?.transpose(0, 1)?.contiguous()?;
    let padded = padding.pad(&rows)?;
    let padded = padded.reshape((padding.samples, padding.longest, heads, width))?;
    padded.transpose(1, 2)?.contiguous()
}

/// `[samples, heads, items, channels, n]` with the last two axes as one.
fn flat(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.flatten_from(3)
}

/// The distance features of multivectors `[samples, heads, items, channels, blades]`, as `Head::write` has them.
fn distances(points: Points, mv: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
    let point: Vec<Tensor> = points
        .blades()
        .map(|blade| mv.narrow(4, blade, 1))
        .collect::<Result<_>>()?;
    let axes = points.coordinates;
    let w = &point[axes];
    let factor = (w / w.sqr()?.affine(1.0, EPS)?)?;
    let weighed: Vec<Tensor> = point.iter().map(|t| t * &factor).collect::<Result<_>>()?;
    let weight = weighed[axes].sqr()?;
    let mut square = weighed[0].sqr()?;
    for coordinate in &weighed[1..axes] {
        square = (square + coordinate.sqr()?)?;
    }
    let products = weighed[..axes].iter().map(|p| p * &weighed[axes]);
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
    features.broadcast_mul(&weights.reshape((1, heads, 1, channels, 1))?)
}
