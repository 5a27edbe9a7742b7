//! The items of geometric algebra transformers between matrix products: norms, gates, and the features of attention.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use flashcliff_sys as sys;

use super::device::Device;
use super::dtype::code;
use super::fault;
use super::tensor::pointer;
use crate::{Algebra, Dtype, Error};

/// The number and the type of items: multivector channels and scalar channels, `rows` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemSizes {
    /// The items.
    pub rows: usize,
    /// The multivector channels of an item; those of one head where items have heads.
    pub channels: usize,
    /// The scalar channels of an item; those of one head where items have heads.
    pub scalars: usize,
    /// The type of all elements. 16-bit elements are computed in `f32`.
    pub dtype: Dtype,
}

/// The place of items in device memory: multivectors `[blades, rows, channels]` and scalars `[rows, scalars]`, whose last axis is
/// contiguous. So items can lie side by side in the rows of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemTensor {
    /// The address of the multivectors.
    pub multivectors: CUdeviceptr,
    /// The elements from a blade to the next.
    pub blade_stride: usize,
    /// The elements from an item to the next.
    pub row_stride: usize,
    /// The address of the scalars; 0 if there are none.
    pub scalars: CUdeviceptr,
    /// The elements from the scalars of an item to those of the next.
    pub scalar_stride: usize,
}

impl ItemTensor {
    fn raw(self) -> sys::fc_item_tensor {
        sys::fc_item_tensor {
            multivectors: pointer(self.multivectors),
            blade_stride: self.blade_stride as i64,
            row_stride: self.row_stride as i64,
            scalars: pointer(self.scalars),
            scalar_stride: self.scalar_stride as i64,
        }
    }
}

/// The smallest numbers below the roots of norms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemEps {
    /// The smallest mean norm of multivectors.
    pub multivectors: f64,
    /// The number that is added to the variance of scalars.
    pub scalars: f64,
}

/// The gains of norms: of multivectors `[channels, grades]` and of scalars `[scalars]`, of the type of the items. An address of 0
/// stands for gains of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemGains {
    /// The address of the gains of multivectors.
    pub multivectors: CUdeviceptr,
    /// The address of the gains of scalars.
    pub scalars: CUdeviceptr,
    /// Gradients only: the address of partial sums of their gradients, [`Items::norm_partials`] times so many numbers as there are
    /// gains, those of multivectors first, in the type of the arithmetic.
    pub partials: CUdeviceptr,
}

impl ItemGains {
    fn raw(self) -> sys::fc_item_gains {
        sys::fc_item_gains {
            multivectors: pointer(self.multivectors),
            scalars: pointer(self.scalars),
            partials: pointer(self.partials),
        }
    }
}

/// The activation of a gate, or of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x Phi(x)`, by the normal distribution.
    Gelu,
    /// The approximation of [`Self::Gelu`] by a hyperbolic tangent.
    GeluTanh,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x / (1 + exp(-x))`
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// All activations, with the names that other hosts use.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("relu", Self::Relu),
        ("gelu", Self::Gelu),
        ("gelu_tanh", Self::GeluTanh),
        ("sigmoid", Self::Sigmoid),
        ("silu", Self::Silu),
        ("tanh", Self::Tanh),
    ];

    fn raw(self) -> sys::fc_activation {
        match self {
            Self::Relu => sys::fc_activation::FC_ACTIVATION_RELU,
            Self::Gelu => sys::fc_activation::FC_ACTIVATION_GELU,
            Self::GeluTanh => sys::fc_activation::FC_ACTIVATION_GELU_TANH,
            Self::Sigmoid => sys::fc_activation::FC_ACTIVATION_SIGMOID,
            Self::Silu => sys::fc_activation::FC_ACTIVATION_SILU,
            Self::Tanh => sys::fc_activation::FC_ACTIVATION_TANH,
        }
    }
}

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
    pub features: CUdeviceptr,
    /// The elements of a head in memory, at least as many as it has features.
    pub width: usize,
    /// The address of the weights of distances `[channels, heads]`; 0 for weights of 1.
    pub weights: CUdeviceptr,
    /// The address of the gradients of weights, `[rows, channels, heads]`: the share of each row; 0 if they are not wanted.
    pub of_weights: CUdeviceptr,
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

/// The way in which items become features.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The type of features: that of the items, or one of 16 bits for items of `f32`.
    pub features: Dtype,
    /// The norm of each head before anything else. Not with features of distances.
    pub norm: Option<ItemEps>,
    /// The blade of the first coordinate of points, and the number of coordinates; the weight of the point follows them.
    pub points: (usize, usize),
    /// The regularisation of distances.
    pub distance_eps: f64,
}

/// The features of attention, `[outer, heads, inner, features]`; the items are `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// The address.
    pub features: CUdeviceptr,
    /// The type: that of the items, or one of 16 bits for items of `f32`.
    pub dtype: Dtype,
    /// The items that are neighbours.
    pub inner: usize,
    /// The heads.
    pub heads: usize,
    /// The elements from one index to the next of the three axes before the last, which is contiguous.
    pub strides: [usize; 3],
}

/// A matrix and runs of neighbouring columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns<'a> {
    /// The address of the matrix `[rows, width]`, whose columns are neighbours in memory.
    pub elements: CUdeviceptr,
    /// The rows.
    pub rows: usize,
    /// The columns.
    pub width: usize,
    /// The elements from a row to the next.
    pub row_stride: usize,
    /// The type of the elements. 16-bit elements are added in `f32`.
    pub dtype: Dtype,
    /// The first column of each run and the one after its last: ascending, none twice, at most [`Columns::MOST`] runs.
    pub runs: &'a [(usize, usize)],
}

impl Columns<'_> {
    /// The most runs.
    pub const MOST: usize = sys::FC_ITEM_RUNS as usize;

    fn raw(self) -> sys::fc_item_columns {
        let mut raw = sys::fc_item_columns {
            elements: pointer(self.elements),
            rows: self.rows as i64,
            width: self.width as i64,
            row_stride: self.row_stride as i64,
            dtype: code(self.dtype),
            // The functions refuse more runs than there is room for.
            count: i32::try_from(self.runs.len()).unwrap_or(i32::MAX),
            ..Default::default()
        };
        let places = raw.starts.iter_mut().zip(&mut raw.stops);
        for ((start, stop), run) in places.zip(self.runs) {
            (*start, *stop) = (run.0 as i64, run.1 as i64);
        }
        raw
    }
}

/// Sums of a few numbers, each times a factor: `to[i]` is the sum over uses `u` of `factors[u][i] * from[places[u][i]]`.
///
/// So the elements of a matrix come from the parameters of layers, and the gradients of parameters from those of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The address of the numbers.
    pub from: CUdeviceptr,
    /// The address of the places of what is summed, `[uses, count]` `i32`.
    pub places: CUdeviceptr,
    /// The address of the factors, `[uses, count]`. A number whose factor is 0 is not read.
    pub factors: CUdeviceptr,
    /// The address of the results, `[count]`.
    pub to: CUdeviceptr,
    /// The results.
    pub count: usize,
    /// The numbers of a sum.
    pub uses: usize,
    /// The type of all numbers and factors. 16-bit numbers are added in `f32`.
    pub dtype: Dtype,
}

/// A factor of each blade of each item, the same for all channels, in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFactors {
    /// The address; 0 for factors of 1.
    pub factors: CUdeviceptr,
    /// The elements from a blade to the next.
    pub blade_stride: usize,
    /// The elements from an item to the next.
    pub row_stride: usize,
}

impl ItemFactors {
    fn raw(self) -> sys::fc_item_factors {
        sys::fc_item_factors {
            factors: pointer::<c_void>(self.factors).cast_const(),
            blade_stride: self.blade_stride as i64,
            row_stride: self.row_stride as i64,
        }
    }
}

/// The device and the stream that functions of [`Items`] launch on.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The device.
    pub device: &'a Device,
    /// A stream of its primary context.
    pub stream: CUstream,
}

/// Functions of the items of transformers over one algebra, of 2 to 5 dimensions.
///
/// Nothing waits, nothing is allocated, and calls can be captured into a CUDA graph. Results are the same bit for bit every time.
///
/// # Safety of all functions
/// Addresses are of memory on the device of the call that holds what their strides and the sizes reach, aligned to an element, until
/// the work on the stream is done. Memory that is written overlaps no other, except that a result may lie exactly where its input
/// does.
///
/// # Errors of all functions
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for an address that is missing or sizes that do not fit each other.
#[derive(Clone, Debug)]
pub struct Items {
    metric: sys::fc_item_metric,
    blades: i32,
}

impl Items {
    /// The most tensors of [`Items::pack_tensors`].
    pub const MOST_TENSORS: usize = sys::FC_ITEM_TENSORS as usize;
    /// The bits of a place among several tensors that say where in a tensor it is.
    pub const PLACE_BITS: u32 = sys::FC_ITEM_PLACE_BITS;

    /// The functions of an algebra.
    ///
    /// # Errors
    /// [`Error::UnsupportedOnCuda`] for other than 2 to 5 dimensions.
    pub fn new(algebra: Algebra) -> Result<Self, Error> {
        let cayley = algebra.cayley();
        let blades = cayley.blade_count();
        if ![4, 8, 16, 32].contains(&blades) {
            return Err(Error::UnsupportedOnCuda {
                operator: "items".to_owned(),
                reason: format!("expected an algebra of 2 to 5 dimensions, got {blades} blades"),
            });
        }
        let mut metric = sys::fc_item_metric::default();
        for (blade, norm) in metric.norms.iter_mut().enumerate().take(blades) {
            *norm = cayley.square_of_blade_norm(blade);
        }
        Ok(Self {
            metric,
            blades: blades as i32,
        })
    }

    /// The rows of partial sums that [`Self::norm_gradient`] writes with gains.
    pub fn norm_partials(&self, sizes: ItemSizes) -> usize {
        // SAFETY: the function reads the sizes only.
        let rows = unsafe { sys::fc_item_norm_partials(&self.sizes(sizes)) };
        usize::try_from(rows).unwrap_or(0)
    }

    /// The sum of items and others if there are any, and the invariant norm of the sum, as [`crate::equivariant::InvariantNorm`], with
    /// the layer norm of scalars, both times gains. `residual` has what is added, and where the sum is written.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a tensor or a choice of its own"
    )]
    pub unsafe fn norm(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        eps: ItemEps,
        gains: ItemGains,
        x: ItemTensor,
        residual: Option<[ItemTensor; 2]>,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let residual = residual.map(|both| both.map(ItemTensor::raw));
        let [added, total] = match &residual {
            Some(both) => both.each_ref().map(ptr::from_ref),
            None => [ptr::null(); 2],
        };
        let (x, to, gains) = (x.raw(), to.raw(), gains.raw());
        target.launch("fc_item_norm", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe {
                let (a, b) = (eps.multivectors, eps.scalars);
                sys::fc_item_norm(
                    &sizes,
                    &self.metric,
                    &gains,
                    a,
                    b,
                    &x,
                    added,
                    total,
                    &to,
                    stream,
                )
            }
        })
    }

    /// The gradient of the sum in [`Self::norm`] from that of the norm, plus `through`, a gradient that comes to the sum by another way.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a tensor or a choice of its own"
    )]
    pub unsafe fn norm_gradient(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        eps: ItemEps,
        gains: ItemGains,
        x: ItemTensor,
        gradient: ItemTensor,
        through: Option<ItemTensor>,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let through = through.map(ItemTensor::raw);
        let other = through.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (x, g, to, gains) = (x.raw(), gradient.raw(), to.raw(), gains.raw());
        target.launch("fc_item_norm_gradient", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe {
                let (a, b) = (eps.multivectors, eps.scalars);
                sys::fc_item_norm_gradient(
                    &sizes,
                    &self.metric,
                    &gains,
                    a,
                    b,
                    &x,
                    &g,
                    other,
                    &to,
                    stream,
                )
            }
        })
    }

    /// Multivectors times the first activation of their scalar blade, and the second activation of scalars.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn gate(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        activations: [Activation; 2],
        x: ItemTensor,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let [of_multivectors, of_scalars] = activations.map(Activation::raw);
        let (x, to) = (x.raw(), to.raw());
        target.launch("fc_item_gate", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_gate(&sizes, of_multivectors, of_scalars, &x, &to, stream) }
        })
    }

    /// The gradient of the input of [`Self::gate`] from that of its result.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn gate_gradient(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        activations: [Activation; 2],
        x: ItemTensor,
        gradient: ItemTensor,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let sizes = self.sizes(sizes);
        let [first, second] = activations.map(Activation::raw);
        let (x, g, to) = (x.raw(), gradient.raw(), to.raw());
        target.launch("fc_item_gate_gradient", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_gate_gradient(&sizes, first, second, &x, &g, &to, stream) }
        })
    }

    /// Writes the features of up to three parts. The channels and scalars of `sizes` are those of one head.
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

    /// Writes the gradients of the items of [`Self::heads`] to `to`, part by part, from those of the features, which `parts` have.
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

    /// `x` times factors plus `y`, where scalars have no factors; `None` stands for zeros. The result may lie where an input does.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn combine(
        &self,
        target: Target<'_>,
        sizes: ItemSizes,
        x: Option<ItemTensor>,
        factors: ItemFactors,
        y: Option<ItemTensor>,
        to: ItemTensor,
    ) -> Result<(), Error> {
        let (sizes, factors, to) = (self.sizes(sizes), factors.raw(), to.raw());
        let given = [x, y].map(|items| items.map(ItemTensor::raw));
        let [x, y] = given
            .each_ref()
            .map(|raw| raw.as_ref().map_or(ptr::null(), ptr::from_ref));
        target.launch("fc_item_combine", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_item_combine(&sizes, x, &factors, y, &to, stream) }
        })
    }

    /// The rows of partial sums that [`Self::column_sums`] writes.
    pub fn sum_partials(columns: Columns<'_>) -> usize {
        // SAFETY: the function reads the sizes only.
        let rows = unsafe { sys::fc_item_sum_partials(&columns.raw()) };
        usize::try_from(rows).unwrap_or(0)
    }

    /// Writes the sums of the columns of all runs, and zeros for the other columns, to `to`, `[width]`. `partials` has room for
    /// [`Self::sum_partials`] times as many numbers as the runs have columns, in the type of the arithmetic.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn column_sums(
        target: Target<'_>,
        columns: Columns<'_>,
        partials: CUdeviceptr,
        to: CUdeviceptr,
    ) -> Result<(), Error> {
        let raw = sys::fc_item_columns {
            partials: pointer(partials),
            to: pointer(to),
            ..columns.raw()
        };
        target.launch("fc_item_sums", |stream| {
            // SAFETY: the caller promises it; the structure lives until the function returns.
            unsafe { sys::fc_item_sums(&raw, stream) }
        })
    }

    /// Writes sums of a few numbers.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and places are those of numbers.
    pub unsafe fn pack(target: Target<'_>, pack: Pack) -> Result<(), Error> {
        let raw = raw_pack(pack);
        target.launch("fc_item_packed", |stream| {
            // SAFETY: the caller promises it; the structure lives until the function returns.
            unsafe { sys::fc_item_packed(&raw, stream) }
        })
    }

    /// Writes sums of a few numbers in several tensors, at most [`Items::MOST_TENSORS`]: a place is the number of a tensor, shifted by
    /// [`Items::PLACE_BITS`], plus the place in it. `from` is not read.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds, and places are those of numbers.
    pub unsafe fn pack_tensors(
        target: Target<'_>,
        pack: Pack,
        tensors: &[CUdeviceptr],
    ) -> Result<(), Error> {
        let raw = raw_pack(pack);
        let tensors: Vec<*const c_void> = tensors
            .iter()
            .map(|&at| pointer::<c_void>(at).cast_const())
            .collect();
        // More tensors than a call takes are an error of the function.
        let count = i32::try_from(tensors.len()).unwrap_or(i32::MAX);
        target.launch("fc_item_packed_tensors", |stream| {
            // SAFETY: the caller promises it; the structure and the list live until the function returns.
            unsafe { sys::fc_item_packed_tensors(&raw, tensors.as_ptr(), count, stream) }
        })
    }

    fn sizes(&self, sizes: ItemSizes) -> sys::fc_items {
        sys::fc_items {
            rows: sizes.rows as i64,
            channels: sizes.channels as i64,
            scalars: sizes.scalars as i64,
            blades: self.blades,
            dtype: code(sizes.dtype),
        }
    }

    fn split(&self, sizes: ItemSizes, split: Split, parts: &[ItemPart]) -> sys::fc_item_split {
        let eps = split.norm.unwrap_or(ItemEps {
            multivectors: 0.0,
            scalars: 0.0,
        });
        let mut call = sys::fc_item_split {
            items: self.sizes(sizes),
            features: code(split.features),
            count: i32::try_from(parts.len()).unwrap_or(i32::MAX),
            normalised: split.norm.is_some().into(),
            metric: self.metric,
            eps: eps.multivectors,
            scalar_eps: eps.scalars,
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

fn raw_pack(pack: Pack) -> sys::fc_item_pack {
    sys::fc_item_pack {
        from: pointer(pack.from),
        places: pointer::<i32>(pack.places).cast_const(),
        factors: pointer(pack.factors),
        to: pointer(pack.to),
        count: pack.count as i64,
        uses: pack.uses as i64,
        dtype: code(pack.dtype),
    }
}

impl Target<'_> {
    /// Calls a function of the kernels with the stream.
    pub(super) fn launch(
        self,
        name: &'static str,
        function: impl FnOnce(*mut c_void) -> std::ffi::c_int,
    ) -> Result<(), Error> {
        self.device.make_current()?;
        fault::kernel(name, function(self.stream.cast()))
    }
}
