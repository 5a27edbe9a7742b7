//! The speed that a GPU reaches: the time of a large matrix product of a type.

use cudarc::driver::DevicePtr;

use super::numbers::{Random, upload};
use super::search::Times;
use super::tuner::Tuner;
use crate::cuda::MatmulPrecision;
use crate::cuda::array::{self, Array};
use crate::cuda::fault;
use crate::cuda::matmul::{Form, ONE, Product};
use crate::{Dtype, Error};

/// The side of the matrices.
const SIDE: usize = 8192;
/// The number of runs before the measurement, and of those that are measured.
const WARM_UP: usize = 3;
const RUNS: usize = 9;

/// The measurement of a large product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// The number of rows and columns of the square matrices.
    pub side: usize,
    /// The times of the product.
    pub times: Times,
}

impl Roofline {
    /// The floating-point operations of the product a second.
    pub fn flops_per_second(&self) -> f64 {
        2.0 * (self.side as f64).powi(3) / self.times.median
    }
}

impl Tuner {
    /// Measures a large product, by the algorithm that the heuristics choose.
    ///
    /// # Errors
    /// [`Error::CudaLibrary`] without cuBLASLt, [`Error::Cuda`] if there is no memory for three matrices of 8192 x
    /// 8192.
    pub fn roofline(
        &mut self,
        dtype: Dtype,
        precision: MatmulPrecision,
    ) -> Result<Roofline, Error> {
        let stream = self.stream.clone();
        let mut random = Random::new(2);
        // Zeros would take less power, and so less time.
        let numbers = random.numbers(SIDE * SIDE, 1.0);
        let shape = [SIDE, SIDE];
        let a = upload(&stream, dtype, &numbers, &shape)?;
        let b = upload(&stream, dtype, &numbers, &shape)?;
        drop(numbers);
        let d = Array::zeros(&stream, dtype, &shape)?;
        let addresses = [&a, &b, &d].map(|array| array.memory().device_ptr(&stream).0);
        let size = (SIDE, SIDE, SIDE);
        let form = Form::TimesTranspose;
        let product = Product::new(form, size, ONE, [dtype; 2], addresses, precision);
        let workspace = array::scratch(&stream, product.problem.workspace_bytes())?;
        let workspace = workspace.device_ptr(&stream).0;
        let blas = self.plain.blas()?;
        self.plain.make_current()?;
        let mut times = Vec::new();
        for _ in 0..WARM_UP + RUNS {
            times.push(self.clock.time(|| {
                // SAFETY: the addresses are three matrices of the problem's sizes and its workspace, which live until
                // the stream is done below; the stream belongs to the current context.
                unsafe { blas.run(&product, workspace, stream.cu_stream()) }
            })?);
        }
        let done = stream.synchronize();
        done.map_err(fault::driver("waiting for the stream"))?;
        Ok(Roofline {
            side: SIDE,
            times: Times::of(&times[WARM_UP..]),
        })
    }
}
