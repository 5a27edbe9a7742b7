//! The speed that a GPU reaches: the time of a large matrix product of a type.

use flashcliff::Dtype;
use flashcliff::cuda::tuning::MatrixProduct;
use flashcliff::cuda::{Array, MatmulPrecision, driver_error};

use crate::random::Random;
use crate::search::Times;
use crate::{Error, Tuner};

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
    /// [`CudaLibrary`](flashcliff::Error::CudaLibrary) without cuBLASLt, [`Cuda`](flashcliff::Error::Cuda) if there is no
    /// memory for three matrices of 8192 x 8192.
    pub fn roofline(
        &mut self,
        dtype: Dtype,
        precision: MatmulPrecision,
    ) -> Result<Roofline, Error> {
        let stream = self.stream.clone();
        // Zeros would take less power, and so less time.
        let numbers = Random::new(2).numbers(SIDE * SIDE, 1.0);
        let matrix = || Array::from_f64(&stream, dtype, &numbers, &[SIDE, SIDE]);
        let operands = [matrix()?, matrix()?];
        drop(numbers);
        let mut product = MatrixProduct::new(&self.plain, &stream, operands, precision)?;
        let mut times = Vec::new();
        for _ in 0..WARM_UP + RUNS {
            times.push(self.clock.time(|| product.launch())?);
        }
        let done = stream.synchronize();
        done.map_err(driver_error("waiting for the stream"))?;
        Ok(Roofline {
            side: SIDE,
            times: Times::of(&times[WARM_UP..]),
        })
    }
}
