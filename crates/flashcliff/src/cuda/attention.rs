//! Scaled dot-product attention within sequences.

use std::ptr;

use flashcliff_sys as sys;

use super::dtype::code;
use super::items::{ItemSizes, ItemTensor, Items, Target};
use super::tensor::pointer;
use crate::cuda::Address;
use crate::{Dtype, Error};

/// Features `[rows, heads, width]` in device memory. The last axis is contiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadTensor {
    /// The address.
    pub features: Address,
    /// The elements from a sequence to the next, where sequences have no bounds.
    pub sequence_stride: usize,
    /// The elements from a row to the next.
    pub row_stride: usize,
    /// The elements from a head to the next.
    pub head_stride: usize,
}

impl HeadTensor {
    fn raw(self) -> sys::fc_attention_tensor {
        sys::fc_attention_tensor {
            features: pointer(self.features),
            sequence_stride: self.sequence_stride as i64,
            row_stride: self.row_stride as i64,
            head_stride: self.head_stride as i64,
        }
    }
}

/// The rows of queries, or of keys: the rows of all sequences, one sequence after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRows {
    /// The rows of all sequences.
    pub count: usize,
    /// The most rows of a sequence; without bounds the rows of each.
    pub longest: usize,
    /// The address of the boundaries, `[sequences + 1]` `i32` that ascend from 0 to `count`; 0 if all sequences are equally long.
    pub bounds: Address,
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
/// Made for `f32`, whose products run on tensor cores. On GPUs of compute capability 9.0 sequences of 128 queries and keys or more have
/// separate kernels. A sequence has the same bits in every batch. A query without keys gets zeros. Memory for scores is never needed.
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
    pub log_sums: Address,
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
        let raw = self.raw();
        target.launch("fc_attention_forward", |stream| {
            // SAFETY: the caller promises it; the structure lives until the function returns.
            unsafe { sys::fc_attention_forward(&raw, stream) }
        })
    }

    /// Writes the gradients of queries, keys and values, in this order, from that of the result. The result and the logarithms come from
    /// [`Self::forward`]. Heads that share keys and values are summed in order. `means` is the address of room for
    /// `[heads, queries]` `f32`.
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
        means: Address,
    ) -> Result<(), Error> {
        let (raw, gradient) = (self.raw(), gradient.raw());
        let gradients = gradients.map(HeadTensor::raw);
        target.launch("fc_attention_backward", |stream| {
            let (gradient, gradients) = (ptr::from_ref(&gradient), gradients.as_ptr());
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_attention_backward(&raw, gradient, gradients, pointer(means), stream) }
        })
    }

    /// Attention of whole sequences, with the result as items of an algebra: `sizes` are the sizes of the result of one
    /// head. `None` where the device has no room for sequences of these lengths, or that does not serve the sizes. The
    /// addresses are not read here.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn whole<'i>(
        &self,
        target: Target<'_>,
        items: &'i Items,
        sizes: ItemSizes,
    ) -> Result<Option<WholeAttention<'i>>, Error> {
        let own = WholeAttention {
            of: *self,
            items,
            sizes,
        };
        let raw = own.raw();
        target.device.make_current()?;
        // SAFETY: the structure lives until the function returns.
        let fits = unsafe { sys::fc_attention_whole_fits(&raw) };
        Ok((fits != 0).then_some(own))
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

/// [`Attention`] of `f32` that reads a sequence and some of its heads once, forward and backward, and writes the
/// result as items. Results and logarithms of sums are not kept: [`Attention::out`] and [`Attention::log_sums`] are
/// not used.
///
/// # Safety and errors of all functions
/// The contract and the errors of [`Attention`].
#[derive(Clone, Copy, Debug)]
pub struct WholeAttention<'i> {
    of: Attention,
    items: &'i Items,
    sizes: ItemSizes,
}

impl WholeAttention<'_> {
    /// Writes the result, channels `[heads, channels]`.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn forward(&self, target: Target<'_>, merged: ItemTensor) -> Result<(), Error> {
        let (raw, merged) = (self.raw(), merged.raw());
        target.launch("fc_attention_whole_forward", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_attention_whole_forward(&raw, &merged, stream) }
        })
    }

    /// Writes the gradients of queries, keys and values, in this order, from that of the result.
    ///
    /// # Errors
    /// The errors of the type.
    ///
    /// # Safety
    /// The contract of the type holds.
    pub unsafe fn backward(
        &self,
        target: Target<'_>,
        merged: ItemTensor,
        gradients: [HeadTensor; 3],
    ) -> Result<(), Error> {
        let (raw, merged) = (self.raw(), merged.raw());
        let gradients = gradients.map(HeadTensor::raw);
        target.launch("fc_attention_whole_backward", |stream| {
            // SAFETY: the caller promises it; the structures live until the function returns.
            unsafe { sys::fc_attention_whole_backward(&raw, &merged, gradients.as_ptr(), stream) }
        })
    }

    fn raw(&self) -> sys::fc_attention_whole {
        sys::fc_attention_whole {
            attention: self.of.raw(),
            items: self.items.sizes(self.sizes),
        }
    }
}
