//! Owned device memory with a shape, for tests and programs that do not have their own tensors.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};

use super::dtype::DeviceElement;
use super::tensor::{Layout, Tensor, TensorMut};
use super::{fault, room};
use crate::tensor::Shape;
use crate::{Dtype, Error};

/// A contiguous tensor on a device that owns its memory.
#[derive(Debug)]
pub struct Array {
    data: CudaSlice<u8>,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Array {
    /// An array of zeros.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`], [`Error::OutOfMemory`], [`Error::Cuda`].
    pub fn zeros(stream: &Arc<CudaStream>, dtype: Dtype, shape: &[usize]) -> Result<Self, Error> {
        let bytes = bytes(dtype, shape)?;
        // An allocation of no bytes is an error for some drivers.
        let data = stream.alloc_zeros::<u8>(bytes.max(1));
        Ok(Self {
            data: data.map_err(room::refused(stream, bytes))?,
            dtype,
            shape: shape.to_vec(),
        })
    }

    /// A copy of host memory.
    ///
    /// # Errors
    /// The errors of [`Self::zeros`], and [`Error::LengthMismatch`].
    pub fn from_host<T: DeviceElement>(
        stream: &Arc<CudaStream>,
        data: &[T],
        shape: &[usize],
    ) -> Result<Self, Error> {
        Shape::of(shape, data.len())?;
        let mut this = Self::zeros(stream, T::DTYPE, shape)?;
        // SAFETY: the elements are plain numbers without padding, and the slice covers their bytes alone.
        let bytes =
            unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
        if !bytes.is_empty() {
            let copied = stream.memcpy_htod(bytes, &mut this.data);
            copied.map_err(fault::driver("copying to the device"))?;
        }
        Ok(this)
    }

    /// A copy of numbers in host memory, each rounded to the nearest of a type.
    ///
    /// # Errors
    /// The errors of [`Self::from_host`].
    pub fn from_f64(
        stream: &Arc<CudaStream>,
        dtype: Dtype,
        data: &[f64],
        shape: &[usize],
    ) -> Result<Self, Error> {
        let data = data.iter();
        match dtype {
            Dtype::F64 => Self::from_host(stream, data.as_slice(), shape),
            Dtype::F32 => {
                let data: Vec<f32> = data.map(|&value| value as f32).collect();
                Self::from_host(stream, &data, shape)
            }
            Dtype::Bf16 => {
                let data: Vec<bf16> = data.map(|&value| bf16::from_f64(value)).collect();
                Self::from_host(stream, &data, shape)
            }
            Dtype::F16 => {
                let data: Vec<f16> = data.map(|&value| f16::from_f64(value)).collect();
                Self::from_host(stream, &data, shape)
            }
        }
    }

    /// An array whose elements in order are the elements of another, over and over: large data without a copy from the
    /// host.
    ///
    /// # Errors
    /// The errors of [`Self::zeros`]; [`Error::LengthMismatch`] for a pattern without elements.
    pub fn repeating(
        stream: &Arc<CudaStream>,
        pattern: &Self,
        shape: &[usize],
    ) -> Result<Self, Error> {
        let mut this = Self::zeros(stream, pattern.dtype, shape)?;
        let total = bytes(this.dtype, shape)?;
        let step = bytes(pattern.dtype, &pattern.shape)?;
        if step == 0 && total > 0 {
            Shape::of(shape, 0)?;
        }
        for start in (0..total).step_by(step.max(1)) {
            let end = total.min(start + step);
            let copied = stream.memcpy_dtod(
                &pattern.data.slice(..end - start),
                &mut this.data.slice_mut(start..end),
            );
            copied.map_err(fault::driver("copying on the device"))?;
        }
        Ok(this)
    }

    /// A copy in host memory, once the work on the stream is done.
    ///
    /// # Errors
    /// [`Error::DtypeMismatch`] for elements of another type, [`Error::Cuda`].
    pub fn to_host<T: DeviceElement>(&self, stream: &Arc<CudaStream>) -> Result<Vec<T>, Error> {
        if T::DTYPE != self.dtype {
            return Err(Error::DtypeMismatch {
                operator: "copying to the host".to_owned(),
                tensor: "array".to_owned(),
                expected: self.dtype.to_string(),
                got: T::DTYPE,
            });
        }
        let mut host = vec![T::default(); self.shape.iter().product()];
        if !host.is_empty() {
            let bytes = size_of_val(&host[..]);
            // SAFETY: the elements are plain numbers, for which all bits are valid, and the slice covers their bytes
            // alone.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(host.as_mut_ptr().cast::<u8>(), bytes) };
            let copied = stream.memcpy_dtoh(&self.data.slice(..bytes.len()), bytes);
            copied.map_err(fault::driver("copying to the host"))?;
        }
        let done = stream.synchronize();
        done.map_err(fault::driver("waiting for the stream"))?;
        Ok(host)
    }

    /// A copy in host memory as `f64`, exactly, once the work on the stream is done.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn to_f64(&self, stream: &Arc<CudaStream>) -> Result<Vec<f64>, Error> {
        Ok(match self.dtype {
            Dtype::F64 => self.to_host::<f64>(stream)?,
            Dtype::F32 => widened::<f32>(&self.to_host(stream)?),
            Dtype::Bf16 => widened::<bf16>(&self.to_host(stream)?),
            Dtype::F16 => widened::<f16>(&self.to_host(stream)?),
        })
    }

    /// The axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The memory of the array. It has at least one byte, even if the array is empty.
    pub fn memory(&self) -> &CudaSlice<u8> {
        &self.data
    }

    /// A view of the array.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`] for more than 4 axes.
    pub fn view(&self) -> Result<Tensor<'_>, Error> {
        let layout = Layout::over_bytes(&self.data, self.dtype, &self.shape)?;
        Ok(Tensor::over(&self.data, layout))
    }

    /// A view of the array, for writing.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`] for more than 4 axes.
    pub fn view_mut(&mut self) -> Result<TensorMut<'_>, Error> {
        let layout = Layout::over_bytes(&self.data, self.dtype, &self.shape)?;
        Ok(TensorMut::over(&mut self.data, layout))
    }
}

/// Memory for intermediate results, not initialised, of at least one byte.
pub(super) fn scratch(stream: &Arc<CudaStream>, bytes: usize) -> Result<CudaSlice<u8>, Error> {
    // SAFETY: operators read nothing of a workspace that they have not written.
    let data = unsafe { stream.alloc::<u8>(bytes.max(1)) };
    data.map_err(room::refused(stream, bytes))
}

fn widened<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

fn bytes(dtype: Dtype, shape: &[usize]) -> Result<usize, Error> {
    let (_, len) = Shape::new(shape)?;
    let bytes = len.checked_mul(dtype.bytes());
    bytes.ok_or_else(|| Error::ShapeTooLarge {
        shape: shape.to_vec(),
    })
}
