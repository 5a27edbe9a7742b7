//! The kernels on NVIDIA GPUs.
//!
//! * `tokens` - norms, gates and dropout.
//! * `products` - geometric products and joins.
//! * `heads` - features of attention from tokens, and back.
//! * `attend` - attention.
//! * `sums` - matrices from parameters, and sums of columns.
//!
//! Outputs are allocated through candle's device, in the order of its stream, on which everything is launched.

mod attend;
mod heads;
mod products;
mod sums;
mod tokens;

use std::sync::Arc;

use candle_core::{CudaDevice, CudaStorage, Device, Storage, Tensor};
use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{ItemEps, ItemSizes, ItemTensor, Items, Target};

use crate::Error;
use crate::op::core_dtype;
use crate::op::gpu::library;
use crate::op::gpu::memory::{self, View, misplaced, with_views};
use crate::op::node::{self, Argument};
use crate::op::transformer::Channels;
use crate::op::transformer::geometry::Geometry;
use crate::op::transformer::norm;

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
        let mut given = arguments.iter().map(Argument::tensor);
        let Some(first) = arguments.first().map(Argument::tensor) else {
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
        if !has_items || mixed || !given.all(served) {
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
}
