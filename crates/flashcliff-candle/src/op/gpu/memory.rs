//! Views of candle's memory for the CUDA library.

use std::ops::Range;

use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::{CudaDevice, CudaStorage, Layout, Storage};
use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr};
use flashcliff::cuda::half::{bf16, f16};
use flashcliff::cuda::{Tensor, TensorMut, allocation_error};

use crate::Error;
use crate::op::node;

/// Memory of `len` elements in the order of the device's stream, not initialised. It has at least one element, since an
/// allocation of no bytes is an error for some drivers.
pub(crate) fn allocate(
    device: &CudaDevice,
    dtype: Dtype,
    len: usize,
) -> Result<CudaStorage, Error> {
    let len = len.max(1);
    Ok(match dtype {
        Dtype::F32 => wrap(device, CudaStorageSlice::F32(unwritten(device, len)?)),
        Dtype::F64 => wrap(device, CudaStorageSlice::F64(unwritten(device, len)?)),
        Dtype::Bf16 => wrap(device, CudaStorageSlice::BF16(unwritten(device, len)?)),
        Dtype::F16 => wrap(device, CudaStorageSlice::F16(unwritten(device, len)?)),
        other => {
            let text = format!("expected an element type of candle, got {other}");
            return Err(candle_core::Error::Msg(text).into());
        }
    })
}

/// Memory of `bytes` bytes, not initialised, in the same way.
pub(crate) fn allocate_bytes(device: &CudaDevice, bytes: usize) -> Result<CudaSlice<u8>, Error> {
    unwritten(device, bytes.max(1))
}

fn wrap(device: &CudaDevice, slice: CudaStorageSlice) -> CudaStorage {
    CudaStorage {
        slice,
        device: device.clone(),
    }
}

#[allow(
    unsafe_code,
    reason = "cleared memory would cost a launch for each tensor"
)]
fn unwritten<T: Number>(device: &CudaDevice, len: usize) -> Result<CudaSlice<T>, Error> {
    let stream = device.cuda_stream();
    // SAFETY: any bits are a number, and nothing on the host reads them. Kernels write the memory before they read it.
    let memory = unsafe { stream.alloc::<T>(len) };
    // This is the allocation of candle's device, with an error that has numbers.
    let bytes = len.saturating_mul(size_of::<T>());
    Ok(memory.map_err(|error| allocation_error(&stream, bytes)(error))?)
}

/// A type for which all bits are valid.
trait Number: flashcliff::cuda::cudarc::driver::DeviceRepr {}

impl Number for u8 {}
impl Number for f32 {}
impl Number for f64 {}
impl Number for bf16 {}
impl Number for f16 {}

/// Elements of candle's memory, for reading.
pub(crate) enum View<'a> {
    F32(CudaView<'a, f32>),
    F64(CudaView<'a, f64>),
    Bf16(CudaView<'a, bf16>),
    F16(CudaView<'a, f16>),
}

impl<'a> View<'a> {
    /// The elements in a range; `None` if the storage does not have them all, or has a type without kernels.
    pub(crate) fn of(storage: &'a CudaStorage, range: Range<usize>) -> Option<Self> {
        match &storage.slice {
            CudaStorageSlice::F32(slice) => slice.try_slice(range).map(Self::F32),
            CudaStorageSlice::F64(slice) => slice.try_slice(range).map(Self::F64),
            CudaStorageSlice::BF16(slice) => slice.try_slice(range).map(Self::Bf16),
            CudaStorageSlice::F16(slice) => slice.try_slice(range).map(Self::F16),
            _ => None,
        }
    }

    /// The address of the first element.
    pub(crate) fn address(&self, stream: &CudaStream) -> CUdeviceptr {
        match self {
            Self::F32(view) => view.device_ptr(stream).0,
            Self::F64(view) => view.device_ptr(stream).0,
            Self::Bf16(view) => view.device_ptr(stream).0,
            Self::F16(view) => view.device_ptr(stream).0,
        }
    }

    /// The type of the elements.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::F64(_) => Dtype::F64,
            Self::Bf16(_) => Dtype::Bf16,
            Self::F16(_) => Dtype::F16,
        }
    }

    /// The elements as a tensor of a shape.
    pub(crate) fn tensor(&self, shape: &[usize]) -> Result<Tensor<'_>, Error> {
        Ok(match self {
            Self::F32(view) => Tensor::new(view, shape)?,
            Self::F64(view) => Tensor::new(view, shape)?,
            Self::Bf16(view) => Tensor::new(view, shape)?,
            Self::F16(view) => Tensor::new(view, shape)?,
        })
    }
}

/// Elements of candle's memory, for writing.
pub(crate) enum ViewMut<'a> {
    F32(CudaViewMut<'a, f32>),
    F64(CudaViewMut<'a, f64>),
    Bf16(CudaViewMut<'a, bf16>),
    F16(CudaViewMut<'a, f16>),
}

impl<'a> ViewMut<'a> {
    /// The first elements; `None` if the storage does not have them all, or has a type without kernels.
    pub(crate) fn of(storage: &'a mut CudaStorage, len: usize) -> Option<Self> {
        match &mut storage.slice {
            CudaStorageSlice::F32(slice) => slice.try_slice_mut(..len).map(Self::F32),
            CudaStorageSlice::F64(slice) => slice.try_slice_mut(..len).map(Self::F64),
            CudaStorageSlice::BF16(slice) => slice.try_slice_mut(..len).map(Self::Bf16),
            CudaStorageSlice::F16(slice) => slice.try_slice_mut(..len).map(Self::F16),
            _ => None,
        }
    }

    /// The elements as a tensor of a shape.
    pub(crate) fn tensor(&mut self, shape: &[usize]) -> Result<TensorMut<'_>, Error> {
        Ok(match self {
            Self::F32(view) => TensorMut::new(view, shape)?,
            Self::F64(view) => TensorMut::new(view, shape)?,
            Self::Bf16(view) => TensorMut::new(view, shape)?,
            Self::F16(view) => TensorMut::new(view, shape)?,
        })
    }
}

/// The first elements of some memory, for writing.
pub(crate) fn writable(storage: &mut CudaStorage, len: usize) -> Result<ViewMut<'_>, Error> {
    ViewMut::of(storage, len).ok_or_else(|| misplaced("allocation"))
}

/// Calls a function with the elements of contiguous tensors on a GPU, without a copy.
pub(crate) fn with_views<R>(
    tensors: &[candle_core::Tensor],
    f: impl FnOnce(&[View]) -> Result<R, Error>,
) -> Result<R, Error> {
    node::with_storages(tensors, |storages| {
        let views: Option<Vec<View>> = storages.iter().map(|pair| view(*pair)).collect();
        f(&views.ok_or_else(|| misplaced("flashcliff"))?)
    })
}

fn view<'a>((storage, layout): (&'a Storage, &Layout)) -> Option<View<'a>> {
    let Storage::Cuda(storage) = storage else {
        return None;
    };
    let (start, end) = layout.contiguous_offsets()?;
    View::of(storage, start..end)
}

/// The error that memory is not where it is expected.
pub(crate) fn misplaced(name: &str) -> Error {
    let text = format!("{name}: expected contiguous memory of one GPU");
    candle_core::Error::Msg(text).into()
}

/// The address of contiguous indices, whose tensor the caller keeps until the work that reads them is launched.
pub(crate) fn indices(
    indices: &candle_core::Tensor,
    stream: &CudaStream,
    operator: &str,
) -> Result<CUdeviceptr, Error> {
    let (storage, layout) = indices.storage_and_layout();
    let error = || misplaced(operator);
    let Storage::Cuda(storage) = &*storage else {
        return Err(error());
    };
    let (start, end) = layout.contiguous_offsets().ok_or_else(error)?;
    let numbers = storage.as_cuda_slice::<u32>()?;
    let view = numbers.try_slice(start..end).ok_or_else(error)?;
    Ok(view.device_ptr(stream).0)
}
