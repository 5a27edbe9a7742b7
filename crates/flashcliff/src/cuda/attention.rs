//! Scaled dot-product attention within sequences.

use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use flashcliff_sys as sys;

use super::dtype::code;
use super::items::Target;
use super::tensor::pointer;
use crate::{Dtype, Error};

/// The most heads of a launch with keys and values of their own: a grid has up to 65,535 of them along an axis, and a gradient takes
/// two for each head.
const HEADS_AT_ONCE: usize = 65_535 / 2;

/// Features `[rows, heads, width]` in device memory. The last axis is contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadTensor {
    /// The address.
    pub features: CUdeviceptr,
    /// The elements from a sequence to the next, where sequences have no bounds.
    pub sequence_stride: usize,
    /// The elements from a row to the next.
    pub row_stride: usize,
    /// The elements from a head to the next.
    pub head_stride: usize,
}

impl HeadTensor {
    /// The features from a head on.
    fn at_head(self, head: usize, dtype: Dtype) -> Self {
        let elements = head * self.head_stride;
        Self {
            features: self.features + (elements * dtype.bytes()) as CUdeviceptr,
            ..self
        }
    }

    fn raw(self) -> sys::fc_attention_tensor {
        sys::fc_attention_tensor {
            features: pointer(self.features),
            sequence_stride: self.sequence_stride as i64,
            row_stride: self.row_stride as i64,
            head_stride: self.head_stride as i64,
        }
    }
}

/// The rows of queries, or of keys: those of all sequences, one sequence behind another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRows {
    /// The rows of all sequences.
    pub count: usize,
    /// The most rows of a sequence; without bounds the rows of each.
    pub longest: usize,
    /// The address of the boundaries, `[sequences + 1]` `i32` that ascend from 0 to `count`; 0 if all sequences are equally long.
    pub bounds: CUdeviceptr,
}

impl SequenceRows {
    fn raw(self) -> sys::fc_attention_rows {
        sys::fc_attention_rows {
            count: self.count as i64,
            longest: self.longest as i64,
            bounds: pointer::<i32>(self.bounds).cast_const(),
        }
    }
}

/// Scaled dot-product attention (Vaswani et al., arXiv 1706.03762, equation 1) of queries over the keys of their sequence:
///
/// `out[i] = sum over keys j of softmax_j(scale * query[i] . key[j]) value[j]`
///
/// Made for `f32`, whose products run on tensor cores, and for short sequences. A query without keys gets zeros. Memory for scores is
/// never needed.
///
/// # Safety of all functions
/// Addresses are of memory on the device of the call that holds what strides, rows and widths reach, until the work on the stream is
/// done. Boundaries ascend. Memory that is written overlaps no other.
///
/// # Errors of all functions
/// [`Error::Cuda`], with `FC_ERROR_BAD_CALL` for an address that is missing or sizes that do not fit, and `FC_ERROR_TOO_LARGE` for more
/// shared memory than the device has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The queries `[queries, heads, width]`.
    pub query: HeadTensor,
    /// The keys `[keys, key_heads, width]`.
    pub key: HeadTensor,
    /// The values `[keys, key_heads, value_width]`.
    pub value: HeadTensor,
    /// The result `[queries, heads, value_width]`.
    pub out: HeadTensor,
    /// The address of the logarithms of the sums of exponentials, `[heads, queries]` `f32`. The gradient reads them; 0 where none is
    /// wanted.
    pub log_sums: CUdeviceptr,
    /// The rows of queries.
    pub queries: SequenceRows,
    /// The rows of keys and values.
    pub keys: SequenceRows,
    /// The sequences.
    pub sequences: usize,
    /// The heads of queries.
    pub heads: usize,
    /// The heads of keys and values: as many, or 1 for all.
    pub key_heads: usize,
    /// The features of queries and keys: a multiple of [`Attention::ALIGNED`], at most [`Attention::WIDTH`].
    pub width: usize,
    /// The features of values: likewise.
    pub value_width: usize,
    /// The factor of dot products.
    pub scale: f32,
    /// The type of all features: `f32`, `bf16` or `f16`. Computed in `f32`.
    pub dtype: Dtype,
    /// Whether factors of `f32` may be rounded to TF32. Otherwise products have the precision of `f32`.
    pub tf32: bool,
}

impl Attention {
    /// The most features of a head.
    pub const WIDTH: usize = sys::FC_ATTENTION_WIDTH as usize;
    /// Widths and strides are multiples of this number of elements, and addresses of as many elements' bytes.
    pub const ALIGNED: usize = sys::FC_ATTENTION_ALIGNED as usize;

    /// Writes the result, and the logarithms of the sums.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn forward(&self, target: Target<'_>) -> Result<(), Error> {
        for (_, part) in self.by_heads() {
            let raw = part.raw();
            target.launch("fc_attention_forward", |stream| {
                // SAFETY: the caller promises it; the structure lives until the function returns.
                unsafe { sys::fc_attention_forward(&raw, stream) }
            })?;
        }
        Ok(())
    }

    /// Writes the gradients of queries, keys and values, in this order, from that of the result. The result and the logarithms are
    /// those of [`Self::forward`]. Heads that share keys and values are summed in order.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn backward(
        &self,
        target: Target<'_>,
        gradient: HeadTensor,
        gradients: [HeadTensor; 3],
    ) -> Result<(), Error> {
        for (first, part) in self.by_heads() {
            let from = |tensor: HeadTensor| tensor.at_head(first, self.dtype).raw();
            let (raw, gradient) = (part.raw(), from(gradient));
            let gradients = gradients.map(from);
            target.launch("fc_attention_backward", |stream| {
                let gradients = gradients.as_ptr();
                // SAFETY: the caller promises it; the structures live until the function returns.
                unsafe {
                    sys::fc_attention_backward(&raw, ptr::from_ref(&gradient), gradients, stream)
                }
            })?;
        }
        Ok(())
    }

    /// The launches of a call: the first head of each, and its part of the heads. Heads that share keys and values are one launch.
    fn by_heads(self) -> impl Iterator<Item = (usize, Self)> {
        // A call without heads is one, which says so.
        let shared = self.key_heads != self.heads || self.heads == 0;
        let step = if shared { usize::MAX } else { HEADS_AT_ONCE };
        (0..self.heads.max(1)).step_by(step).map(move |first| {
            if first == 0 && self.heads <= step {
                return (0, self);
            }
            let from = |tensor: HeadTensor| tensor.at_head(first, self.dtype);
            let heads = step.min(self.heads - first);
            let sums = first * self.queries.count * size_of::<f32>();
            let log_sums = match self.log_sums {
                0 => 0,
                start => start + sums as CUdeviceptr,
            };
            let part = Self {
                query: from(self.query),
                key: from(self.key),
                value: from(self.value),
                out: from(self.out),
                log_sums,
                heads,
                key_heads: heads,
                ..self
            };
            (first, part)
        })
    }

    fn raw(&self) -> sys::fc_attention {
        // The functions refuse counts that do not fit.
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        sys::fc_attention {
            query: self.query.raw(),
            key: self.key.raw(),
            value: self.value.raw(),
            out: self.out.raw(),
            log_sums: pointer(self.log_sums),
            queries: self.queries.raw(),
            keys: self.keys.raw(),
            sequences: self.sequences as i64,
            heads: count(self.heads),
            key_heads: count(self.key_heads),
            width: count(self.width),
            value_width: count(self.value_width),
            scale: self.scale,
            dtype: code(self.dtype),
            exact: (!self.tf32).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(heads: usize, key_heads: usize) -> Attention {
        let tensor = HeadTensor {
            features: 4096,
            sequence_stride: 0,
            row_stride: 8,
            head_stride: 64,
        };
        let rows = SequenceRows {
            count: 10,
            longest: 5,
            bounds: 0,
        };
        Attention {
            query: tensor,
            key: tensor,
            value: tensor,
            out: tensor,
            log_sums: 1 << 40,
            queries: rows,
            keys: rows,
            sequences: 2,
            heads,
            key_heads,
            width: 8,
            value_width: 8,
            scale: 1.0,
            dtype: Dtype::F16,
            tf32: false,
        }
    }

    #[test]
    fn heads_are_divided_among_launches() {
        let found: Vec<_> = call(65_537, 65_537).by_heads().collect();
        assert_eq!(found.len(), 3);
        assert_eq!(
            found.iter().map(|(_, part)| part.heads).sum::<usize>(),
            65_537
        );
        for (first, part) in found {
            assert!(2 * part.key_heads <= 65_535);
            assert_eq!(part.heads, part.key_heads);
            assert_eq!(part.value.features, 4096 + (first * 64 * 2) as CUdeviceptr);
            assert_eq!(part.log_sums, (1 << 40) + (first * 10 * 4) as CUdeviceptr);
        }
    }

    #[test]
    fn few_heads_and_shared_keys_are_one_launch() {
        for whole in [call(32_767, 32_767), call(70_000, 1), call(1, 1)] {
            assert_eq!(whole.by_heads().collect::<Vec<_>>(), [(0, whole)]);
        }
    }
}
