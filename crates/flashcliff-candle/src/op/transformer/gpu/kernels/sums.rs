//! Matrices from parameters, and sums of columns.

use candle_core::{Result, Tensor};
use flashcliff::cuda::items::{Columns, Items, Pack};

use super::Cuda;
use crate::op::transformer::gpu::SumKernels;

impl SumKernels for Cuda {
    fn pack(&self, from: &Tensor, places: &Tensor, factors: &Tensor) -> Result<Tensor> {
        let (uses, count) = places.dims2()?;
        let to = self.output(&[count])?;
        self.read([from, factors], |[from, factors]| {
            let pack = Pack {
                from,
                places: self.indices(places)?,
                factors,
                to: to.address,
                count,
                uses,
                dtype: self.dtype,
            };
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: there is a factor for each place, the caller's places are those of numbers, and `to` is this function's and has the results, all
            // on this device. Work on the memory of candle's tensors is in the order of their device's stream, also what frees it.
            Ok(unsafe { Items::pack(self.target(), pack) }?)
        })?;
        Ok(to.written())
    }

    fn column_sums(&self, x: &Tensor, runs: &[(usize, usize)]) -> Result<Tensor> {
        let (rows, width) = x.dims2()?;
        let to = self.output(&[width])?;
        self.read([x], |[elements]| {
            let columns = Columns {
                elements,
                rows,
                width,
                row_stride: x.stride()[0],
                dtype: self.dtype,
                runs,
            };
            let taken: usize = runs.iter().map(|(start, stop)| stop - start).sum();
            let partials = self.output(&[Items::sum_partials(columns) * taken])?;
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `pack`, for the matrix, the partial sums of all runs, and the sums of all columns.
            Ok(
                unsafe {
                    Items::column_sums(self.target(), columns, partials.address, to.address)
                }?,
            )
        })?;
        Ok(to.written())
    }
}
