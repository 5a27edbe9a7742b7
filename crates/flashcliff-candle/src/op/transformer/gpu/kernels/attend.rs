//! Attention without scores, of `f32`.

use candle_core::{Result, Tensor};
use flashcliff::Dtype;
use flashcliff::cuda::attention::{Attention as Kernel, HeadTensor, SequenceRows};
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;

use super::{Cuda, Output};
use crate::Error;
use crate::op::transformer::gpu::AttentionKernels;
use crate::op::transformer::gpu::fused::Heads;
use crate::precision::{self, Precision};

/// The widths of features for the kernels; `None` if they do not serve them.
fn widths(dtype: Dtype, features: [usize; 2]) -> Option<[usize; 2]> {
    let widths = features.map(|count| count.next_multiple_of(Kernel::ALIGNED));
    let fits = |width: usize| (1..=Kernel::WIDTH).contains(&width);
    (dtype == Dtype::F32 && widths.into_iter().all(fits)).then_some(widths)
}

/// Features `[rows, heads, width]`.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    heads: usize,
    width: usize,
}

impl Sizes {
    fn of(features: &Tensor) -> std::result::Result<Self, Error> {
        let (rows, heads, width) = features.dims3()?;
        Ok(Self { rows, heads, width })
    }

    /// Contiguous features of sequences that are so long at most, for kernels of so many heads.
    fn at(self, address: CUdeviceptr, longest: usize, readers: usize) -> HeadTensor {
        let row_stride = self.heads * self.width;
        HeadTensor {
            features: address,
            sequence_stride: longest * row_stride,
            row_stride,
            // Several heads may read one.
            head_stride: if self.heads < readers { 0 } else { self.width },
        }
    }
}

impl AttentionKernels for Cuda {
    fn attended_widths(&self, features: [usize; 2]) -> Option<[usize; 2]> {
        widths(self.dtype, features)
    }

    fn attend(&self, heads: &Heads, parts: [&Tensor; 3]) -> Result<(Tensor, Tensor)> {
        Ok(self.attended(heads, parts)?)
    }

    fn attend_gradient(
        &self,
        heads: &Heads,
        features: [&Tensor; 4],
        log_sums: &Tensor,
        g: &Tensor,
    ) -> Result<[Tensor; 3]> {
        Ok(self.attended_gradient(heads, features, log_sums, g)?)
    }
}

impl Cuda {
    /// The result of attention, and the logarithms of the sums of exponentials.
    fn attended(
        &self,
        heads: &Heads,
        parts: [&Tensor; 3],
    ) -> std::result::Result<(Tensor, Tensor), Error> {
        let [query, key, value] = parts.map(Sizes::of);
        let sizes = [query?, key?, value?];
        let [query, _, value] = sizes;
        let out = self.output(&[query.rows, heads.heads, value.width])?;
        let log_sums = self.output(&[heads.heads, query.rows])?;
        self.read(parts, |[query, key, value]| {
            let read = [query, key, value, out.address];
            let kernel = self.kernel(heads, sizes, read, log_sums.address)?;
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: all are contiguous tensors of `f32` of these sizes on this device, and the outputs are this function's. Bounds ascend to the
            // rows, which the shape of the tokens was compared with. Work on the memory of candle's tensors is in the order of their device's stream,
            // also what frees it.
            Ok(unsafe { kernel.forward(self.target()) }?)
        })?;
        Ok((out.written(), log_sums.written()))
    }

    /// The gradients of queries, keys and values.
    fn attended_gradient(
        &self,
        heads: &Heads,
        features: [&Tensor; 4],
        log_sums: &Tensor,
        g: &Tensor,
    ) -> std::result::Result<[Tensor; 3], Error> {
        let [query, key, value, out] = features;
        let sizes = [Sizes::of(query)?, Sizes::of(key)?, Sizes::of(value)?];
        let [of_query, of_key, of_value] = sizes;
        let [queries, keys] = heads.longest;
        let own = |sizes: Sizes| Sizes {
            heads: heads.key_heads,
            ..sizes
        };
        let places = [
            (of_query, queries),
            (own(of_key), keys),
            (own(of_value), keys),
        ];
        let outputs = places.map(|(sizes, longest)| {
            let output = self.output(&[sizes.rows, sizes.heads, sizes.width])?;
            let place = sizes.at(output.address, longest, sizes.heads);
            Ok::<(Output, HeadTensor), Error>((output, place))
        });
        let [to_query, to_key, to_value] = outputs;
        let [to_query, to_key, to_value] = [to_query?, to_key?, to_value?];
        let gradients = [to_query.1, to_key.1, to_value.1];
        self.read([query, key, value, out, log_sums, g], |addresses| {
            let [query, key, value, out, log_sums, g] = addresses;
            let kernel = self.kernel(heads, sizes, [query, key, value, out], log_sums)?;
            let g = HeadTensor {
                features: g,
                ..kernel.out
            };
            #[allow(unsafe_code, reason = "a kernel on the memory of tensors")]
            // SAFETY: as in `attended`: the gradient has the size of the result, and each output that of its part, with the heads of gradients.
            Ok(unsafe { kernel.backward(self.target(), g, gradients) }?)
        })?;
        Ok([to_query, to_key, to_value].map(|(output, _)| output.written()))
    }

    /// The call for queries, keys, values and the result at these addresses.
    fn kernel(
        &self,
        heads: &Heads,
        [query, key, value]: [Sizes; 3],
        [at_query, at_key, at_value, at_out]: [CUdeviceptr; 4],
        log_sums: CUdeviceptr,
    ) -> std::result::Result<Kernel, Error> {
        let [queries, keys] = heads.longest;
        let out = Sizes {
            width: value.width,
            ..query
        };
        let [of_queries, of_keys] = match &heads.bounds {
            None => [0, 0],
            Some([queries, keys]) => [self.indices(queries)?, self.indices(keys)?],
        };
        let rows = |sizes: Sizes, longest, bounds| SequenceRows {
            count: sizes.rows,
            longest,
            bounds,
        };
        Ok(Kernel {
            query: query.at(at_query, queries, heads.heads),
            key: key.at(at_key, keys, heads.key_heads),
            value: value.at(at_value, keys, heads.key_heads),
            out: out.at(at_out, queries, heads.heads),
            log_sums,
            queries: rows(query, queries, of_queries),
            keys: rows(key, keys, of_keys),
            sequences: heads.sequences,
            heads: heads.heads,
            key_heads: heads.key_heads,
            width: query.width,
            value_width: value.width,
            scale: heads.scale as f32,
            dtype: self.dtype,
            tf32: precision::current() == Precision::Tf32,
        })
    }
}
