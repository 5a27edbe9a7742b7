//! Numbers in their own memory, for kernels that take addresses.

use std::sync::Arc;

use flashcliff::Dtype;
use flashcliff::cuda::cudarc::driver::CudaStream;
use flashcliff::cuda::items::Target;

use crate::device::device;
use crate::dtypes::{decode, encode, round};
use crate::memory::Memory;
use crate::random::Random;

/// A stream, and numbers for its kernels.
pub(super) struct Bench {
    pub(super) stream: Arc<CudaStream>,
    pub(super) random: Random,
}

/// Numbers of a type, in an allocation of just their size.
pub(super) struct Numbers {
    memory: Memory,
    dtype: Dtype,
    /// What was written from the host; empty for a result.
    pub(super) given: Vec<f64>,
}

impl Bench {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            stream: device().new_stream().expect("a stream"),
            random: Random::new(seed),
        }
    }

    pub(super) fn target(&self) -> Target<'static> {
        Target {
            device: device(),
            stream: self.stream.cu_stream(),
        }
    }

    /// Numbers that a kernel reads.
    pub(super) fn given(&self, dtype: Dtype, values: Vec<f64>) -> Numbers {
        let mut bytes = vec![0; values.len() * dtype.bytes()];
        encode(dtype, &values, &mut bytes);
        let mut memory = Memory::new(device(), bytes.len());
        memory.write(&self.stream, 0, &bytes);
        Numbers {
            memory,
            dtype,
            given: values.into_iter().map(|v| round(dtype, v)).collect(),
        }
    }

    /// Numbers that a kernel reads, and after them as many elements that nothing has written.
    pub(super) fn given_before_nothing(&self, dtype: Dtype, values: &[f64]) -> Numbers {
        let mut bytes = vec![0; values.len() * dtype.bytes()];
        encode(dtype, values, &mut bytes);
        let mut memory = Memory::new(device(), 2 * bytes.len());
        memory.write(&self.stream, 0, &bytes);
        Numbers {
            memory,
            dtype,
            given: values.iter().map(|&v| round(dtype, v)).collect(),
        }
    }

    /// Random numbers that a kernel reads.
    pub(super) fn reals(&mut self, dtype: Dtype, count: usize) -> Numbers {
        let values = self.random.reals(count);
        self.given(dtype, values)
    }

    /// Small whole numbers, whose products and sums are exact.
    pub(super) fn integers(&mut self, count: usize) -> Numbers {
        self.whole(Dtype::F32, count)
    }

    /// The same in another type.
    pub(super) fn whole(&mut self, dtype: Dtype, count: usize) -> Numbers {
        let values = self.random.integers(count);
        self.given(dtype, values)
    }

    /// The address of whole numbers that a kernel reads, with their memory.
    pub(super) fn places(&self, places: &[i32]) -> Memory {
        let bytes: Vec<u8> = places
            .iter()
            .flat_map(|place| place.to_le_bytes())
            .collect();
        let mut memory = Memory::new(device(), bytes.len());
        memory.write(&self.stream, 0, &bytes);
        memory
    }

    /// Memory for a result, which nothing has written.
    pub(super) fn result(&self, dtype: Dtype, count: usize) -> Numbers {
        Numbers {
            memory: Memory::new(device(), count * dtype.bytes()),
            dtype,
            given: Vec::new(),
        }
    }

    /// The numbers of a result, all of which must be finite.
    pub(super) fn read(&self, numbers: &Numbers, what: &str) -> Vec<f64> {
        let mut bytes = vec![0; numbers.memory.bytes()];
        numbers.memory.read(&self.stream, 0, &mut bytes);
        let values = decode(numbers.dtype, &bytes);
        assert!(values.iter().all(|value| value.is_finite()), "{what}");
        values
    }
}

impl Numbers {
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }
}

/// Numbers near others: the bound is relative for numbers of magnitude 1 and more.
pub(super) fn assert_near(got: &[f64], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (got - expected).abs();
        assert!(
            error <= bound * expected.abs().max(1.0),
            "{what}[{at}]: expected {expected}, got {got}"
        );
    }
}
