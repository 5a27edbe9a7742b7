//! Random numbers for measurements, the same in every run, for every element type.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::{bf16, f16};

use crate::cuda::Array;
use crate::{Dtype, Error};

/// Random numbers by a linear congruential generator: good enough to multiply, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A random number in [-1, 1).
    pub(super) fn unit(&mut self) -> f64 {
        let Self(state) = self;
        *state = state.wrapping_mul(6_364_136_223_846_793_005);
        *state = state.wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// `len` random numbers in [-scale, scale).
    pub(super) fn numbers(&mut self, len: usize, scale: f64) -> Vec<f64> {
        (0..len).map(|_| scale * self.unit()).collect()
    }
}

/// The nearest number of a type.
pub(super) fn round(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::F64 => value,
        Dtype::F32 => f64::from(value as f32),
        Dtype::Bf16 => bf16::from_f64(value).to_f64(),
        Dtype::F16 => f16::from_f64(value).to_f64(),
    }
}

/// Numbers on a device, rounded to a type.
pub(super) fn upload(
    stream: &Arc<CudaStream>,
    dtype: Dtype,
    values: &[f64],
    shape: &[usize],
) -> Result<Array, Error> {
    let values = values.iter();
    match dtype {
        Dtype::F64 => Array::from_host(stream, values.as_slice(), shape),
        Dtype::F32 => {
            let values: Vec<f32> = values.map(|&value| value as f32).collect();
            Array::from_host(stream, &values, shape)
        }
        Dtype::Bf16 => {
            let values: Vec<bf16> = values.map(|&value| bf16::from_f64(value)).collect();
            Array::from_host(stream, &values, shape)
        }
        Dtype::F16 => {
            let values: Vec<f16> = values.map(|&value| f16::from_f64(value)).collect();
            Array::from_host(stream, &values, shape)
        }
    }
}

/// Copies numbers from a device, exactly, once the work on the stream is done.
pub(super) fn download(stream: &Arc<CudaStream>, array: &Array) -> Result<Vec<f64>, Error> {
    Ok(match array.dtype() {
        Dtype::F64 => array.to_host::<f64>(stream)?,
        Dtype::F32 => array
            .to_host::<f32>(stream)?
            .into_iter()
            .map(f64::from)
            .collect(),
        Dtype::Bf16 => array
            .to_host::<bf16>(stream)?
            .into_iter()
            .map(f64::from)
            .collect(),
        Dtype::F16 => array
            .to_host::<f16>(stream)?
            .into_iter()
            .map(f64::from)
            .collect(),
    })
}
