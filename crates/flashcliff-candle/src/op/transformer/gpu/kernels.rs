//! The kernels of NVIDIA GPUs for the stages; `attend` has those of attention.
//!
//! Outputs are allocated through candle's device, in the order of its stream, on which everything is launched.

mod attend;

use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::{CudaDevice, CudaStorage, Device, Result, Storage, Tensor};
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{
    Activation, Columns, Distances, Features, ItemEps, ItemGains, ItemPart, ItemSizes, ItemTensor,
    Items, Pack, Split, Target,
};
use flashcliff::cuda::{StridedSizes, StridedTensor};
use flashcliff::{Dtype, Operator};

use super::Kernels;
use super::dropout::dropped;
use super::fused::Heads;
use crate::Error;
use crate::op::core_dtype;
use crate::op::gpu::library;
use crate::op::gpu::memory::{self, View, misplaced, with_views};
use crate::op::node::{self, Argument};
use crate::op::transformer::Channels;
use crate::op::transformer::attention::Attention;
use crate::op::transformer::draw::Draw;
use crate::op::transformer::dropout::Dropout;
use crate::op::transformer::features::{EPS, Part};
use crate::op::transformer::gate::Gated;
use crate::op::transformer::geometry::Geometry;
use crate::op::transformer::norm::{self, Norm};
use crate::op::transformer::product::Products;

const NORM_EPS: ItemEps = ItemEps {
    multivectors: norm::EPS,
    scalars: norm::SCALAR_EPS,
};
/// The kernels for one type of elements on the stream of a device of candle.
pub(in crate::op::transformer) struct Cuda {
    candle: CudaDevice,
    device: flashcliff::Device,
    stream: Arc<CudaStream>,
    items: Items,
    blades: usize,
    dtype: Dtype,
}

/// Memory that a kernel writes.
struct Output {
    storage: CudaStorage,
    shape: Vec<usize>,
    address: CUdeviceptr,
}

impl Output {
    /// The tensor, after the launch of what writes it.
    fn written(self) -> Tensor {
        node::constant(Storage::Cuda(self.storage), &self.shape)
    }
}

impl Cuda {
    /// The kernels for arguments of a function of tokens, if they serve these: tokens of `f32` or `f64` on a GPU, and all else of the same type; of an
    /// algebra of 2 to 5 dimensions, without distances of normalised heads.
    pub(in crate::op::transformer) fn serving(
        geometry: &Geometry,
        arguments: &[Argument],
    ) -> std::result::Result<Option<Self>, Error> {
        let seen: Vec<Tensor> = arguments
            .iter()
            .map(Argument::seen)
            .collect::<Result<_>>()?;
        let Some(first) = seen.first() else {
            return Ok(None);
        };
        let Device::Cuda(candle) = first.device() else {
            return Ok(None);
        };
        let dtype = match core_dtype(first.dtype()) {
            Some(dtype @ (Dtype::F32 | Dtype::F64)) => dtype,
            _ => return Ok(None),
        };
        let served = |x: &Tensor| x.dtype() == first.dtype() && x.elem_count() > 0;
        let has_items = [4, 8, 16, 32].contains(&geometry.blades());
        let mixed = geometry.head_norm && geometry.distances;
        if !has_items || mixed || !seen.iter().all(served) {
            return Ok(None);
        }
        Ok(Some(Self {
            candle: candle.clone(),
            device: library::device(candle)?,
            stream: candle.cuda_stream(),
            items: Items::new(geometry.algebra)?,
            blades: geometry.blades(),
            dtype,
        }))
    }

    fn target(&self) -> Target<'_> {
        Target {
            device: &self.device,
            stream: self.stream.cu_stream(),
        }
    }

    /// Memory for a tensor.
    fn output(&self, shape: &[usize]) -> std::result::Result<Output, Error> {
        let len = shape.iter().product();
        let storage = memory::allocate(&self.candle, self.dtype, len)?;
        let view = View::of(&storage, 0..len).ok_or_else(|| misplaced("transformer"))?;
        let address = view.address(&self.stream);
        Ok(Output {
            storage,
            shape: shape.to_vec(),
            address,
        })
    }

    /// Calls a function with the addresses of contiguous tensors, which have the type of the kernels.
    fn read<const N: usize, R>(
        &self,
        tensors: [&Tensor; N],
        f: impl FnOnce([CUdeviceptr; N]) -> std::result::Result<R, Error>,
    ) -> std::result::Result<R, Error> {
        with_views(&tensors.map(Tensor::clone), |views| {
            if views.iter().any(|view| view.dtype() != self.dtype) {
                return Err(misplaced("transformer"));
            }
            f(std::array::from_fn(|at| views[at].address(&self.stream)))
        })
    }

    /// The address of contiguous indices, whose tensor the caller keeps.
    fn indices(&self, indices: &Tensor) -> std::result::Result<CUdeviceptr, Error> {
        memory::indices(indices, &self.stream, "transformer")
    }

    /// The address so many elements further.
    fn after(&self, address: CUdeviceptr, elements: usize) -> CUdeviceptr {
        address + (elements * self.dtype.bytes()) as CUdeviceptr
    }

    /// Packed rows at an address.
    fn packed(&self, channels: Channels, address: CUdeviceptr) -> ItemTensor {
        self.part(channels, channels, Channels::default(), address)
    }

    /// Some channels of packed rows of `all` channels, from the `first` on.
    fn part(
        &self,
        all: Channels,
        own: Channels,
        first: Channels,
        address: CUdeviceptr,
    ) -> ItemTensor {
        let scalars = match own.scalars {
            0 => 0,
            _ => self.after(address, self.blades * all.multivectors + first.scalars),
        };
        ItemTensor {
            multivectors: self.after(address, first.multivectors),
            blade_stride: all.multivectors,
            row_stride: all.width_over(self.blades),
            scalars,
            scalar_stride: all.width_over(self.blades),
        }
    }

    fn sizes(&self, rows: usize, channels: Channels) -> ItemSizes {
        ItemSizes {
            rows,
            channels: channels.multivectors,
            scalars: channels.scalars,
            dtype: self.dtype,
        }
    }

    /// Copies the scalars of packed rows to others.
    fn copy_scalars(&self, from: (&Tensor, Channels), to: (&mut Output, Channels)) -> Result<()> {
        let ((from, channels), (to, others)) = (from, to);
        let (storage, layout) = from.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else {
            return Err(misplaced("transformer").into());
        };
        storage.copy2d(
            &mut to.storage,
            from.dim(0)?,
            channels.scalars,
            channels.width_over(self.blades),
            others.width_over(self.blades),
            layout.start_offset() + self.blades * channels.multivectors,
            self.blades * others.multivectors,
        )
    }

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

    /// Both products: their operators, and the first channels of factors and products in packed rows.
    fn each_product<'a>(
        &self,
        products: &'a Products,
        rows: usize,
        mut run: impl FnMut(
            &flashcliff::cuda::Operator,
            StridedSizes,
            [usize; 2],
            usize,
        ) -> std::result::Result<(), Error>,
    ) -> std::result::Result<(), Error> {
        let each = products.each;
        let sizes = StridedSizes {
            batch: rows,
            channels: each,
            dtype: self.dtype,
        };
        let operators: Vec<&'a Operator> = products.operators().collect();
        for (at, operator) in operators.into_iter().enumerate() {
            let factors = [2 * at * each, (2 * at + 1) * each];
            run(&operator.on_cuda(&self.device)?, sizes, factors, at * each)?;
        }
        Ok(())
    }

    /// The multivectors of packed rows from a channel on.
    fn strided(&self, channels: Channels, address: CUdeviceptr, first: usize) -> StridedTensor {
        StridedTensor {
            address: self.after(address, first),
            blade_stride: channels.multivectors,
            row_stride: channels.width_over(self.blades),
        }
    }
}

/// The gains of multivectors and those of scalars, as far as a norm has them.
fn split_gains<'a>(norm: &Norm, gains: &'a [Tensor]) -> [Option<&'a Tensor>; 2] {
    let (of_mv, of_s) =
        gains.split_at(gains.len().min(usize::from(norm.channels.multivectors > 0)));
    [of_mv.first(), of_s.first()]
}

/// The gate of multivectors and that of scalars.
fn activations(gated: &Gated) -> [Activation; 2] {
    let of_scalars = match gated.tanh_scalars {
        true => Activation::GeluTanh,
        false => Activation::Gelu,
    };
    [Activation::GeluTanh, of_scalars]
}

impl Kernels for Cuda {
    fn norm(&self, norm: &Norm, x: &Tensor, gains: &[Tensor]) -> Result<Tensor> {
        let channels = norm.channels;
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        let [of_mv, of_s] = split_gains(norm, gains);
        self.read(
            [x, of_mv.unwrap_or(x), of_s.unwrap_or(x)],
            |[x, gains, gains_s]| {
                let (x, to) = (self.packed(channels, x), self.packed(channels, to.address));
                let gains = ItemGains {
                    multivectors: of_mv.map_or(0, |_| gains),
                    scalars: of_s.map_or(0, |_| gains_s),
                    partials: 0,
                };
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: both are packed rows of these sizes of this type on this device, gains have the shapes of their channels, and `to` is
                // this function's. Work on the memory of candle's tensors is in the order of their device's stream, also what frees it.
                Ok(unsafe {
                    self.items
                        .norm(self.target(), sizes, NORM_EPS, gains, x, None, to)
                }?)
            },
        )?;
        Ok(to.written())
    }

    fn norm_gradient(
        &self,
        norm: &Norm,
        x: &Tensor,
        gains: &[Tensor],
        g: &Tensor,
        through: Option<&Tensor>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let channels = norm.channels;
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        let added = through.is_some();
        let [of_mv, of_s] = split_gains(norm, gains);
        let count: usize = gains.iter().map(Tensor::elem_count).sum();
        let partials = match count {
            0 => None,
            count => Some(self.output(&[self.items.norm_partials(sizes), count])?),
        };
        let through = through.unwrap_or(g);
        self.read(
            [x, g, through, of_mv.unwrap_or(x), of_s.unwrap_or(x)],
            |[x, g, through, gains, gains_s]| {
                let [x, g, through] = [x, g, through].map(|address| self.packed(channels, address));
                let through = added.then_some(through);
                let to = self.packed(channels, to.address);
                let gains = ItemGains {
                    multivectors: of_mv.map_or(0, |_| gains),
                    scalars: of_s.map_or(0, |_| gains_s),
                    partials: partials.as_ref().map_or(0, |partials| partials.address),
                };
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: as in `norm`, for four tensors of these sizes, and as many rows of partial sums as the kernel writes.
                Ok(unsafe {
                    self.items.norm_gradient(
                        self.target(),
                        sizes,
                        NORM_EPS,
                        gains,
                        x,
                        g,
                        through,
                        to,
                    )
                }?)
            },
        )?;
        let sums = partials.map(|partials| self.column_sums(&partials.written(), &[(0, count)]));
        Ok((to.written(), sums.transpose()?))
    }

    fn drop(&self, dropout: &Dropout, x: &Tensor, draw: &Draw) -> Result<Tensor> {
        Ok(dropped(dropout, Some(x), x, draw)?)
    }

    fn gate(&self, gated: &Gated, x: &Tensor) -> Result<Tensor> {
        let (channels, gates) = (gated.channels, activations(gated));
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        self.read([x], |[x]| {
            let (x, to) = (self.packed(channels, x), self.packed(channels, to.address));
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `norm`.
            Ok(unsafe { self.items.gate(self.target(), sizes, gates, x, to) }?)
        })?;
        Ok(to.written())
    }

    fn gate_gradient(&self, gated: &Gated, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let (channels, gates) = (gated.channels, activations(gated));
        let to = self.output(x.dims())?;
        let sizes = self.sizes(x.dim(0)?, channels);
        self.read([x, g], |addresses| {
            let [x, g] = addresses.map(|address| self.packed(channels, address));
            let to = self.packed(channels, to.address);
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `norm`, for three tensors of these sizes.
            Ok(unsafe {
                self.items
                    .gate_gradient(self.target(), sizes, gates, x, g, to)
            }?)
        })?;
        Ok(to.written())
    }

    fn products(&self, products: &Products, x: &Tensor) -> Result<Tensor> {
        let (input, output) = (products.input(), products.output());
        let rows = x.dim(0)?;
        let mut to = self.output(&[rows, output.width_over(self.blades)])?;
        self.read([x], |[x]| {
            self.each_product(products, rows, |operator, sizes, factors, first| {
                let factors = factors.map(|first| self.strided(input, x, first));
                let to = self.strided(output, to.address, first);
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: as in `norm`; factors and products are different channels of the packed rows.
                Ok(unsafe {
                    operator.forward_strided(self.stream.cu_stream(), sizes, &factors, to)
                }?)
            })
        })?;
        self.copy_scalars((x, input), (&mut to, output))?;
        Ok(to.written())
    }

    fn products_gradient(&self, products: &Products, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let (input, output) = (products.input(), products.output());
        let rows = x.dim(0)?;
        let mut to = self.output(x.dims())?;
        self.read([x, g], |[x, g]| {
            self.each_product(products, rows, |operator, sizes, factors, first| {
                let given = factors.map(|first| self.strided(input, x, first));
                let to = factors.map(|first| Some(self.strided(input, to.address, first)));
                let g = self.strided(output, g, first);
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: as in `products`.
                Ok(unsafe {
                    operator.backward_strided(self.stream.cu_stream(), sizes, &given, g, &to)
                }?)
            })
        })?;
        self.copy_scalars((g, output), (&mut to, input))?;
        Ok(to.written())
    }

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
            // SAFETY: as in `norm`: `x` has packed rows with the channels of all parts, and each part has its own features in `to`.
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

    fn attended_widths(&self, features: [usize; 2]) -> Option<[usize; 2]> {
        attend::widths(self.dtype, features)
    }

    fn attend(&self, heads: &Heads, parts: [&Tensor; 3]) -> Result<(Tensor, Tensor)> {
        Ok(self.attended(heads, parts)?)
    }

    fn attend_gradient(
        &self,
        heads: &Heads,
        features: [&Tensor; 4],
        log_sums: &Tensor,
        g: &Tensor,
    ) -> Result<[Tensor; 3]> {
        Ok(self.attended_gradient(heads, features, log_sums, g)?)
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

    fn pack(&self, from: &Tensor, places: &Tensor, factors: &Tensor) -> Result<Tensor> {
        let (uses, count) = places.dims2()?;
        let to = self.output(&[count])?;
        self.read([from, factors], |[from, factors]| {
            let pack = Pack {
                from,
                places: self.indices(places)?,
                factors,
                to: to.address,
                count,
                uses,
                dtype: self.dtype,
            };
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `norm`: there is a factor for each place, the caller's places are those of numbers, and `to` has the results.
            Ok(unsafe { Items::pack(self.target(), pack) }?)
        })?;
        Ok(to.written())
    }

    fn column_sums(&self, x: &Tensor, runs: &[(usize, usize)]) -> Result<Tensor> {
        let (rows, width) = x.dims2()?;
        let to = self.output(&[width])?;
        self.read([x], |[elements]| {
            let columns = Columns {
                elements,
                rows,
                width,
                row_stride: x.stride()[0],
                dtype: self.dtype,
                runs,
            };
            let taken: usize = runs.iter().map(|(start, stop)| stop - start).sum();
            let partials = self.output(&[Items::sum_partials(columns) * taken])?;
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `norm`, for the matrix, the partial sums of all runs, and the sums of all columns.
            Ok(
                unsafe {
                    Items::column_sums(self.target(), columns, partials.address, to.address)
                }?,
            )
        })?;
        Ok(to.written())
    }
}
