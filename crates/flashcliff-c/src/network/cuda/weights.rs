//! The weights of a file on a GPU.

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::{CudaSlice, DevicePtr};
use flashcliff::cuda::{Device, allocation_error, driver_error};
use flashcliff_network::Number;

use crate::status::Failure;

/// The alignment of each parameter in bytes.
const ALIGNED: usize = 256;

/// The parameters of a network one after another.
pub(super) struct Weights {
    /// Their addresses.
    pub(super) addresses: Vec<u64>,
    _memory: Option<CudaSlice<u8>>,
}

impl Weights {
    /// Copies parameters, and waits until they are there for all streams.
    pub(super) fn new<T: Number>(device: &Device, parameters: &[Vec<T>]) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        let mut starts = Vec::with_capacity(parameters.len());
        for own in parameters {
            starts.push(bytes.len() as u64);
            let numbers = own.iter().map(|number| number.to_f64());
            match T::DTYPE {
                Dtype::F32 => bytes.extend(numbers.flat_map(|x| (x as f32).to_ne_bytes())),
                _ => bytes.extend(numbers.flat_map(f64::to_ne_bytes)),
            }
            bytes.resize(bytes.len().next_multiple_of(ALIGNED), 0);
        }
        if bytes.is_empty() {
            return Ok(Self {
                addresses: starts,
                _memory: None,
            });
        }
        // The stream of a caller may be gone when this memory goes.
        let stream = device.default_stream();
        let memory = stream.clone_htod(&bytes);
        let memory = memory.map_err(|error| allocation_error(&stream, bytes.len())(error))?;
        let waited = stream.synchronize();
        waited.map_err(driver_error("cuStreamSynchronize"))?;
        let from = memory.device_ptr(&stream).0;
        Ok(Self {
            addresses: starts.into_iter().map(|start| from + start).collect(),
            _memory: Some(memory),
        })
    }
}
