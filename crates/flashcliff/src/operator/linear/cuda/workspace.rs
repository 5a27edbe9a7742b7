//! The workspace of the linear map.

use flashcliff_sys as sys;

use super::Linear;
use crate::Dtype;
use crate::cuda::call::{Gradients, Kept};
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::matmul::Product;
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::{Dims, Pass};

/// The parts of a workspace, as offsets in bytes from its start, and its size. What a packing keeps has no room here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Workspace {
    /// One matrix `[out, in]` for each grade or each blade, in the type of the lanes.
    pub(super) weights: u64,
    /// The bias, or one for each blade, in the type of the lanes.
    pub(super) bias: u64,
    /// Gradients `[out, in]` for each grade, or their parts, in the type of sums. They share the memory of `weights`.
    pub(super) weight_grads: u64,
    /// The partial sums of the gradient of the bias. They share the memory of `weights` too.
    pub(super) sums: u64,
    /// The workspace of cuBLASLt.
    pub(super) product: u64,
    pub(super) bytes: usize,
}

impl Workspace {
    pub(super) fn new(
        linear: &Linear,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        grads: &Gradients,
        kept: &Kept,
    ) -> Self {
        let n = dims.out_channels;
        let lanes = dtypes.lanes;
        let [wants_x, wants_weight, wants_bias] = linear.wanted(grads);
        let matrices = |count: usize, dtype: Dtype| {
            let bytes = dtype.bytes();
            count * stride(dims, bytes) * bytes
        };
        let mut this = Self::default();
        let reads_weights = pass == Pass::Forward || wants_x;
        let has_place = kept.weight.is_some() || kept.room.is_some();
        let weights = match reads_weights && !has_place {
            true => linear.packed_bytes(dims, dtypes, pass),
            false => 0,
        };
        if pass == Pass::Forward {
            this.weights = this.add(weights);
            if linear.has_bias() && kept.bias.is_none() {
                let count = linear.packed_biases(dims);
                this.bias = this.add(count * bias_stride(dims, lanes.bytes()) * lanes.bytes());
            }
        } else {
            let adds_up_here = kept.parts.is_none() && linear.unpacks_gradients(dims);
            let weight_grads = if wants_weight && adds_up_here {
                let dtype = linear.gradient_type(dims, dtypes);
                matrices(linear.packed_gradients(dims), dtype)
            } else {
                0
            };
            let sums = if wants_bias {
                let rows = (linear.biased_blades() * dims.batch) as i64;
                // SAFETY: the function computes a number.
                unsafe { sys::fc_linear_column_sums_workspace(rows, n as i64, code(lanes)) }
            } else {
                0
            };
            // The gradients are computed one after the other, and share the same memory.
            let turns = this.add(weights.max(weight_grads).max(sums));
            [this.weights, this.weight_grads, this.sums] = [turns; 3];
        }
        // Products run one after the other, and share the same memory.
        let mut most = 0;
        let mut count = |product: &Product| {
            most = most.max(product.problem.workspace_bytes());
            Ok(())
        };
        // Counting cannot fail.
        let _ = match pass {
            Pass::Forward => linear.outputs(dims, dtypes, [0; 4], &mut count),
            Pass::Backward => Ok(()),
        };
        if wants_x {
            let _ = linear.x_gradients(dims, dtypes, [0; 3], &mut count);
        }
        if wants_weight {
            let _ = linear.weight_gradients(dims, dtypes, [0; 3], &mut count);
        }
        this.product = this.add(most);
        this
    }

    /// The parts with the packed weight at another address.
    pub(super) fn with_weights_at(self, weights: u64) -> Self {
        Self { weights, ..self }
    }

    /// The addresses of the parts, in a workspace at `base`.
    pub(super) fn at(self, base: u64) -> Self {
        Self {
            weights: base + self.weights,
            bias: base + self.bias,
            weight_grads: base + self.weight_grads,
            sums: base + self.sums,
            product: base + self.product,
            bytes: self.bytes,
        }
    }

    /// Adds a part to the workspace and returns its offset.
    fn add(&mut self, bytes: usize) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        offset as u64
    }
}

/// The distance in elements from one packed matrix to the next. Each matrix has the alignment of an allocation.
pub(super) fn stride(dims: &Dims, bytes: usize) -> usize {
    let elements = dims.in_channels * dims.out_channels;
    elements.next_multiple_of(WORKSPACE_ALIGNMENT / bytes)
}

/// The distance in elements from one packed bias to the next.
pub(super) fn bias_stride(dims: &Dims, bytes: usize) -> usize {
    dims.out_channels
        .next_multiple_of(WORKSPACE_ALIGNMENT / bytes)
}
