//! Geometric products and joins.

use candle_core::backend::BackendStorage;
use candle_core::{Result, Storage, Tensor};
use flashcliff::Operator;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::{StridedSizes, StridedTensor};

use super::{Cuda, Output};
use crate::Error;
use crate::op::gpu::memory::misplaced;
use crate::op::transformer::Channels;
use crate::op::transformer::gpu::ProductKernels;
use crate::op::transformer::product::Products;

impl Cuda {
    /// Both products: their operators, and the first channels of factors and products in packed rows.
    fn each_product<'a>(
        &self,
        products: &'a Products,
        rows: usize,
        mut run: impl FnMut(
            &flashcliff::cuda::Operator,
            StridedSizes,
            [usize; 2],
            usize,
        ) -> std::result::Result<(), Error>,
    ) -> std::result::Result<(), Error> {
        let each = products.each;
        let sizes = StridedSizes {
            batch: rows,
            channels: each,
            dtype: self.dtype,
        };
        let operators: Vec<&'a Operator> = products.operators().collect();
        for (at, operator) in operators.into_iter().enumerate() {
            let factors = [2 * at * each, (2 * at + 1) * each];
            run(&operator.on_cuda(&self.device)?, sizes, factors, at * each)?;
        }
        Ok(())
    }

    /// The multivectors of packed rows from a channel on.
    fn strided(&self, channels: Channels, address: CUdeviceptr, first: usize) -> StridedTensor {
        StridedTensor {
            address: self.after(address, first),
            blade_stride: channels.multivectors,
            row_stride: channels.width_over(self.blades),
        }
    }

    /// Copies the scalars of packed rows to others.
    fn copy_scalars(&self, from: (&Tensor, Channels), to: (&mut Output, Channels)) -> Result<()> {
        let ((from, channels), (to, others)) = (from, to);
        let (storage, layout) = from.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else {
            return Err(misplaced("transformer").into());
        };
        storage.copy2d(
            &mut to.storage,
            from.dim(0)?,
            channels.scalars,
            channels.width_over(self.blades),
            others.width_over(self.blades),
            layout.start_offset() + self.blades * channels.multivectors,
            self.blades * others.multivectors,
        )
    }
}

impl ProductKernels for Cuda {
    fn products(&self, products: &Products, x: &Tensor) -> Result<Tensor> {
        let (input, output) = (products.input(), products.output());
        let rows = x.dim(0)?;
        let mut to = self.output(&[rows, output.width_over(self.blades)])?;
        self.read([x], |[x]| {
            self.each_product(products, rows, |operator, sizes, factors, first| {
                let factors = factors.map(|first| self.strided(input, x, first));
                let to = self.strided(output, to.address, first);
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: factors and products are different channels of packed rows of these sizes, of this type on this device, and `to` is this
                // function's. Work on the memory of candle's tensors is in the order of their device's stream, also what frees it.
                Ok(unsafe {
                    operator.forward_strided(self.stream.cu_stream(), sizes, &factors, to)
                }?)
            })
        })?;
        self.copy_scalars((x, input), (&mut to, output))?;
        Ok(to.written())
    }

    fn products_gradient(&self, products: &Products, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let (input, output) = (products.input(), products.output());
        let rows = x.dim(0)?;
        let mut to = self.output(x.dims())?;
        self.read([x, g], |[x, g]| {
            self.each_product(products, rows, |operator, sizes, factors, first| {
                let given = factors.map(|first| self.strided(input, x, first));
                let to = factors.map(|first| Some(self.strided(input, to.address, first)));
                let g = self.strided(output, g, first);
                #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
                // SAFETY: as in `products`.
                Ok(unsafe {
                    operator.backward_strided(self.stream.cu_stream(), sizes, &given, g, &to)
                }?)
            })
        })?;
        self.copy_scalars((g, output), (&mut to, input))?;
        Ok(to.written())
    }
}
