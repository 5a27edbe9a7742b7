//! Features of attention from tokens, and tokens from what was attended to.

use candle_core::{Result, Tensor};
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{Distances, Features, ItemPart, ItemTensor, Split};

use super::{Cuda, NORM_EPS, Output};
use crate::Error;
use crate::op::gpu::memory::{self, misplaced, with_views};
use crate::op::transformer::attention::Attention;
use crate::op::transformer::features::{EPS, Part};
use crate::op::transformer::gpu::HeadKernels;

impl Cuda {
    /// The parts of packed rows of an input, without their features, and the numbers of each row.
    fn parts(
        &self,
        attention: &Attention,
        side: usize,
        address: CUdeviceptr,
        [width, value_width]: [usize; 2],
    ) -> Vec<(ItemPart, usize)> {
        let head = &attention.head;
        let all = attention.sides()[side];
        let inner = head.inner.iter();
        let taken = inner
            .clone()
            .fold(0_u32, |set, (blade, _)| set | 1 << blade);
        let signed = inner.filter(|&&(_, sign)| sign < 0.0);
        let negative = signed.fold(0_u32, |set, (blade, _)| set | 1 << blade);
        let every = u32::MAX >> (u32::BITS as usize - self.blades);
        let places = attention.places_of(side).into_iter().map(|place| {
            let own = head.channels().times(place.heads);
            let has_points = head.points.is_some();
            let (taken, negative, distances) = match place.part {
                Part::Query => (taken, negative, has_points.then_some(Distances::Query)),
                Part::Key => (taken, 0, has_points.then_some(Distances::Key)),
                Part::Value => (every, 0, None),
            };
            let width = match place.part {
                Part::Query | Part::Key => width,
                Part::Value => value_width,
            };
            let part = ItemPart {
                items: self.part(all, own, place.first, address),
                features: 0,
                width,
                weights: 0,
                of_weights: 0,
                logarithms: false,
                heads: place.heads,
                taken,
                negative,
                distances,
            };
            (part, place.heads * width)
        });
        places.collect()
    }

    fn split(&self, attention: &Attention) -> Split {
        let dim = attention.geometry.algebra.cayley().dim();
        Split {
            features: self.dtype,
            norm: attention.geometry.head_norm.then_some(NORM_EPS),
            // The blades of grade `dim - 1`, the last of them without a null vector.
            points: (self.blades - 1 - dim, dim - 1),
            distance_eps: EPS,
        }
    }

    fn features(&self, address: CUdeviceptr, shape: [usize; 4], by_item: bool) -> Features {
        let [_, second, third, width] = shape;
        let (heads, inner, head, item) = match by_item {
            true => (third, second, width, third * width),
            false => (second, third, third * width, width),
        };
        Features {
            features: address,
            dtype: self.dtype,
            inner,
            heads,
            strides: [second * third * width, head, item],
        }
    }

    /// Merges heads, or splits them.
    fn merge_at(
        &self,
        attention: &Attention,
        features: Features,
        rows: usize,
        merged: CUdeviceptr,
        back: bool,
    ) -> std::result::Result<(), Error> {
        let head = attention.head.channels();
        let merged = self.packed(attention.output(), merged);
        let sizes = self.sizes(rows, head);
        #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
        // SAFETY: the caller has both tensors, of the shape and of as many packed rows, of this type on this device, and owns the one that
        // is written. Work on the memory of candle's tensors is in the order of their device's stream, also what frees it.
        Ok(unsafe {
            self.items
                .merge(self.target(), sizes, features, merged, back)
        }?)
    }
}

impl HeadKernels for Cuda {
    fn heads(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        widths: [usize; 2],
    ) -> Result<Vec<Tensor>> {
        let rows = x.dim(0)?;
        let parts = self.parts(attention, side, 0, widths);
        let len: usize = parts.iter().map(|(_, of_row)| rows * of_row).sum();
        // One allocation for all.
        let to = self.output(&[len])?;
        let head = attention.head.channels();
        let weighed = weights.is_some();
        self.read([x, weights.unwrap_or(x)], |[x, weights]| {
            let mut first = 0;
            let parts = self.parts(attention, side, x, widths).into_iter();
            let parts = parts.map(|(part, of_row)| {
                let features = self.after(to.address, first);
                first += rows * of_row;
                let is_query = part.distances == Some(Distances::Query);
                ItemPart {
                    features,
                    weights: if weighed && is_query { weights } else { 0 },
                    ..part
                }
            });
            let parts: Vec<ItemPart> = parts.collect();
            let (sizes, split) = (self.sizes(rows, head), self.split(attention));
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: `x` has packed rows with the channels of all parts, of this type on this device, and each part has its own features in `to`, which
            // is this function's. Work on the memory of candle's tensors is in the order of their device's stream, also what frees it.
            Ok(unsafe { self.items.heads(self.target(), sizes, split, &parts) }?)
        })?;
        let all = to.written();
        let mut first = 0;
        let features = parts.into_iter().map(|(part, of_row)| {
            let own = all.narrow(0, first, rows * of_row)?;
            first += rows * of_row;
            own.reshape((rows, part.heads, part.width))
        });
        features.collect()
    }

    fn heads_gradient(
        &self,
        attention: &Attention,
        side: usize,
        x: &Tensor,
        weights: Option<&Tensor>,
        features: &[Tensor],
        widths: [usize; 2],
    ) -> Result<(Tensor, Option<Tensor>)> {
        let rows = x.dim(0)?;
        let to = self.output(x.dims())?;
        let has_queries = side == 0;
        let of_weights = weights.filter(|_| has_queries).map(|weights| {
            let shape = [rows, weights.elem_count()];
            self.output(&shape)
        });
        let of_weights = of_weights.transpose()?;
        let head = attention.head.channels();
        let mut tensors = vec![x.clone(), weights.unwrap_or(x).clone()];
        tensors.extend(features.iter().cloned());
        with_views(&tensors, |views| {
            if views.iter().any(|view| view.dtype() != self.dtype) {
                return Err(misplaced("transformer"));
            }
            let addresses: Vec<CUdeviceptr> = views
                .iter()
                .map(|view| view.address(&self.stream))
                .collect();
            let [x, weight_address, gradients @ ..] = &addresses[..] else {
                return Err(misplaced("transformer"));
            };
            let parts = self.parts(attention, side, *x, widths).into_iter();
            let parts = parts.zip(gradients).map(|((part, _), &features)| {
                let is_query = part.distances == Some(Distances::Query);
                let given = of_weights.as_ref().filter(|_| is_query);
                ItemPart {
                    features,
                    weights: given.map_or(0, |_| *weight_address),
                    of_weights: given.map_or(0, |output| output.address),
                    logarithms: false,
                    ..part
                }
            });
            let parts: Vec<ItemPart> = parts.collect();
            let places = self.parts(attention, side, to.address, widths).into_iter();
            let places: Vec<ItemTensor> = places.map(|(part, _)| part.items).collect();
            let (sizes, split) = (self.sizes(rows, head), self.split(attention));
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `heads`, and `of_weights` has the weights for each row.
            Ok(unsafe {
                self.items
                    .heads_gradient(self.target(), sizes, split, &parts, &places)
            }?)
        })?;
        Ok((to.written(), of_weights.map(Output::written)))
    }

    fn merge(&self, attention: &Attention, features: &Tensor, by_item: bool) -> Result<Tensor> {
        let shape @ (outer, second, third, _) = features.dims4()?;
        let rows = outer * second * third / attention.heads;
        let to = self.output(&[rows, attention.output().width_over(self.blades)])?;
        self.read([features], |[features]| {
            let features = self.features(features, shape.into(), by_item);
            self.merge_at(attention, features, rows, to.address, false)
        })?;
        Ok(to.written())
    }

    fn merge_gradient(
        &self,
        attention: &Attention,
        g: &Tensor,
        features: [usize; 4],
        by_item: bool,
    ) -> Result<Tensor> {
        let mut to = self.output(&features)?;
        let [outer, second, third, width] = features;
        if width > attention.head.features(Part::Value) {
            // The kernel writes no more than the features.
            let len = features.iter().product();
            memory::clear(&self.candle, &mut to.storage, 0..len)?;
        }
        let rows = outer * second * third / attention.heads;
        self.read([g], |[g]| {
            let features = self.features(to.address, features, by_item);
            self.merge_at(attention, features, rows, g, true)
        })?;
        Ok(to.written())
    }
}
