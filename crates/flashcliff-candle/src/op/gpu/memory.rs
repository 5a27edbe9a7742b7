//! Views of candle's memory for the CUDA library.

use std::ops::Range;

use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::{CudaDevice, CudaStorage, DType};
use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use flashcliff::cuda::half::{bf16, f16};
use flashcliff::cuda::{Tensor, TensorMut};

use crate::Error;

/// The core's element type for a type of candle, if there are kernels for it.
pub(super) fn dtype(candle: DType) -> Option<Dtype> {
    match candle {
        DType::F32 => Some(Dtype::F32),
        DType::F64 => Some(Dtype::F64),
        DType::BF16 => Some(Dtype::Bf16),
        DType::F16 => Some(Dtype::F16),
        _ => None,
    }
}

/// Memory of `len` elements in the order of the device's stream, not initialised. It has at least one element, since an
/// allocation of no bytes is an error for some drivers.
pub(super) fn allocate(
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
pub(super) fn allocate_bytes(device: &CudaDevice, bytes: usize) -> Result<CudaSlice<u8>, Error> {
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
    // SAFETY: any bits are a number, and nothing on the host reads them. Kernels write the memory before they read it.
    let memory = unsafe { device.alloc::<T>(len) };
    Ok(memory?)
}

/// A type for which all bits are valid.
trait Number: flashcliff::cuda::cudarc::driver::DeviceRepr {}

impl Number for u8 {}
impl Number for f32 {}
impl Number for f64 {}
impl Number for bf16 {}
impl Number for f16 {}

/// Elements of candle's memory, for reading.
pub(super) enum View<'a> {
    F32(CudaView<'a, f32>),
    F64(CudaView<'a, f64>),
    Bf16(CudaView<'a, bf16>),
    F16(CudaView<'a, f16>),
}

impl<'a> View<'a> {
    /// The elements in a range; `None` if the storage does not have them all, or has a type without kernels.
    pub(super) fn of(storage: &'a CudaStorage, range: Range<usize>) -> Option<Self> {
        match &storage.slice {
            CudaStorageSlice::F32(slice) => slice.try_slice(range).map(Self::F32),
            CudaStorageSlice::F64(slice) => slice.try_slice(range).map(Self::F64),
            CudaStorageSlice::BF16(slice) => slice.try_slice(range).map(Self::Bf16),
            CudaStorageSlice::F16(slice) => slice.try_slice(range).map(Self::F16),
            _ => None,
        }
    }

    /// The elements as a tensor of a shape.
    pub(super) fn tensor(&self, shape: &[usize]) -> Result<Tensor<'_>, Error> {
        Ok(match self {
            Self::F32(view) => Tensor::new(view, shape)?,
            Self::F64(view) => Tensor::new(view, shape)?,
            Self::Bf16(view) => Tensor::new(view, shape)?,
            Self::F16(view) => Tensor::new(view, shape)?,
        })
    }
}

/// Elements of candle's memory, for writing.
pub(super) enum ViewMut<'a> {
    F32(CudaViewMut<'a, f32>),
    F64(CudaViewMut<'a, f64>),
    Bf16(CudaViewMut<'a, bf16>),
    F16(CudaViewMut<'a, f16>),
}

impl<'a> ViewMut<'a> {
    /// The first elements; `None` if the storage does not have them all, or has a type without kernels.
    pub(super) fn of(storage: &'a mut CudaStorage, len: usize) -> Option<Self> {
        match &mut storage.slice {
            CudaStorageSlice::F32(slice) => slice.try_slice_mut(..len).map(Self::F32),
            CudaStorageSlice::F64(slice) => slice.try_slice_mut(..len).map(Self::F64),
            CudaStorageSlice::BF16(slice) => slice.try_slice_mut(..len).map(Self::Bf16),
            CudaStorageSlice::F16(slice) => slice.try_slice_mut(..len).map(Self::F16),
            _ => None,
        }
    }

    /// The elements as a tensor of a shape.
    pub(super) fn tensor(&mut self, shape: &[usize]) -> Result<TensorMut<'_>, Error> {
        Ok(match self {
            Self::F32(view) => TensorMut::new(view, shape)?,
            Self::F64(view) => TensorMut::new(view, shape)?,
            Self::Bf16(view) => TensorMut::new(view, shape)?,
            Self::F16(view) => TensorMut::new(view, shape)?,
        })
    }
}
