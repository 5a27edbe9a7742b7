//! Features of attention from items, and back.

use flashcliff_sys as sys;

use super::{ItemSizes, ItemTensor, Items, Target};
use crate::cuda::Address;
use crate::cuda::dtype::code;
use crate::cuda::tensor::pointer;
use crate::{Dtype, Error};

/// Features of the distances of points, as queries or as keys have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distances {
    /// `(2 w p, -w^2, -|p|^2)`, times a weight.
    Query,
    /// `(w p, |p|^2, w^2)`.
    Key,
}

/// Queries, keys or values: items whose channels are `[channels, heads]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemPart {
    /// The items, or their gradients.
    pub items: ItemTensor,
    /// The address of the features `[rows, heads, width]`: of each taken blade its channels, the features of distances, the scalars,
    /// and zeros.
    pub features: Address,
    /// The elements of a head in memory, at least as many as it has features.
    pub width: usize,
    /// The address of the weights of distances `[channels, heads]`; 0 for weights of 1.
    pub weights: Address,
    /// The address of the gradients of weights, `[rows, channels, heads]`: the share of each row; 0 if they are not wanted.
    pub of_weights: Address,
    /// Whether `weights` are logarithms `[heads, channels]`, and `of_weights` are their gradients, `[rows, heads, channels]`.
    pub logarithms: bool,
    /// The heads.
    pub heads: usize,
    /// The blades that are features, as a set of bits.
    pub taken: u32,
    /// The blades that are negated, as a set of bits.
    pub negative: u32,
    /// The features of distances, if there are any.
    pub distances: Option<Distances>,
}

/// The smallest numbers below the roots of norms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemEps {
    /// The smallest mean norm of multivectors.
    pub multivectors: f64,
    /// The number that is added to the variance of scalars.
    pub scalars: f64,
}

/// The norm of each head of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadNorm {
    /// The invariant norm of multivectors and the layer norm of scalars, as [`InvariantNorm`](crate::equivariant::InvariantNorm).
    Grades(ItemEps),
    /// Multivectors and scalars over one root: of this number plus the mean over all channels of the magnitudes of
    /// squared norms of multivectors, all blades together, and of squared scalars.
    Joint(f64),
}

/// The way in which items become features.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The type of features: that of the items, or one of 16 bits for items of `f32`.
    pub features: Dtype,
    /// The norm of each head before anything else. Not with features of distances.
    pub norm: Option<HeadNorm>,
    /// The blade of the first coordinate of points, and the number of coordinates; the weight of the point follows them.
    pub points: (usize, usize),
    /// The regularisation of distances.
    pub distance_eps: f64,
}

/// The features of attention, `[outer, heads, inner, features]`; the items are `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// The address.
    pub features: Address,
    /// The type: that of the items, or one of 16 bits for items of `f32`.
    pub dtype: Dtype,
    /// The items that are neighbours.
    pub inner: usize,
    /// The heads.
    pub heads: usize,
    /// The elements from one index to the next of the three axes before the last, which is contiguous.
    pub strides: [usize; 3],
}

impl Items {
    /// Writes the features of up to three parts. `sizes` has the channels and scalars of one head.
    ///
    /// # Errors
    /// The errors of the type; too many parts are a bad call.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn heads(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        split: Split,
        parts: &[ItemPart],
    ) -> Result<(), Error> {
        let call = self.split(sizes, split, parts);
        target.launch("fc_item_heads", |stream| {
            // SAFETY: the caller promises it; the structure lives until the function returns.
            unsafe { sys::fc_item_heads(&call, stream) }
        })
    }

    /// Writes the gradients of the items of [`Self::heads`] to `to`, part by part, from the gradients of the features, which `parts` have.
    ///
    /// # Errors
    /// The errors of the type; too many parts are a bad call.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn heads_gradient(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        split: Split,
        parts: &[ItemPart],
        to: &[ItemTensor],
    ) -> Result<(), Error> {
        let mut call = self.split(sizes, split, parts);
        if to.len() != parts.len() {
            // The function refuses a call without parts.
            call.count = 0;
        }
        let to: Vec<_> = to.iter().map(|&to| to.raw()).collect();
        target.launch("fc_item_heads_gradient", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns, and there is one of `to` for each part.
            unsafe { sys::fc_item_heads_gradient(&call, to.as_ptr(), stream) }
        })
    }

    /// Writes the features of attention to items whose channels are `[heads, channels]`, or back.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn merge(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        features: Features,
        merged: ItemTensor,
        back: bool,
    ) -> Result<(), Error> {
        let (sizes, merged) = (self.sizes(sizes), merged.raw());
        let [outer, head, inner] = features.strides.map(|stride| stride as i64);
        let features = sys::fc_item_features {
            features: pointer(features.features),
            dtype: code(features.dtype),
            inner: features.inner as i64,
            heads: features.heads as i64,
            outer_stride: outer,
            head_stride: head,
            inner_stride: inner,
        };
        target.launch("fc_item_merge", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_merge(&sizes, &features, &merged, back.into(), stream) }
        })
    }

    fn split(&self, sizes: ItemSizes, split: Split, parts: &[ItemPart]) -> sys::fc_item_split {
        let (norm, eps, scalar_eps) = match split.norm {
            None => (sys::fc_head_norm::FC_HEAD_NORM_NONE, 0.0, 0.0),
            Some(HeadNorm::Grades(eps)) => (
                sys::fc_head_norm::FC_HEAD_NORM_GRADES,
                eps.multivectors,
                eps.scalars,
            ),
            Some(HeadNorm::Joint(eps)) => (sys::fc_head_norm::FC_HEAD_NORM_JOINT, eps, 0.0),
        };
        let mut call = sys::fc_item_split {
            items: self.sizes(sizes),
            features: code(split.features),
            count: i32::try_from(parts.len()).unwrap_or(i32::MAX),
            norm,
            metric: self.metric,
            eps,
            scalar_eps,
            first: split.points.0 as i32,
            dim: split.points.1 as i32,
            distance_eps: split.distance_eps,
            ..Default::default()
        };
        // The function refuses a call of more parts than there is room for.
        for (to, part) in call.parts.iter_mut().zip(parts) {
            *to = sys::fc_item_part {
                x: part.items.raw(),
                features: pointer(part.features),
                width: part.width as i64,
                weights: pointer(part.weights),
                of_weights: pointer(part.of_weights),
                logarithms: part.logarithms.into(),
                heads: part.heads as i64,
                taken: part.taken,
                negative: part.negative,
                distances: match part.distances {
                    None => sys::fc_distances::FC_DISTANCES_NONE,
                    Some(Distances::Query) => sys::fc_distances::FC_DISTANCES_QUERY,
                    Some(Distances::Key) => sys::fc_distances::FC_DISTANCES_KEY,
                },
            };
        }
        call
    }
}
