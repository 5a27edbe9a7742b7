//! What the workspace of the linear map holds.

use flashcliff_sys as sys;

use super::{Linear, MAX_ROWS};
use crate::Dtype;
use crate::cuda::call::Gradients;
use crate::cuda::dtype::{Dtypes, code};
use crate::cuda::matmul::workspace_bytes;
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::{Dims, Pass};

/// The parts of a workspace, as offsets in bytes from its start, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Workspace {
    /// One matrix `[out, in]` for each grade or each blade, in the type of the lanes.
    pub(super) weights: u64,
    /// The bias, in the type of the lanes.
    pub(super) bias: u64,
    /// Gradients `[out, in]` for each grade, or their parts, in the type of sums.
    pub(super) weight_grads: u64,
    /// The partial sums of the gradient of the bias.
    pub(super) sums: u64,
    /// cuBLASLt's own.
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
    ) -> Self {
        let (k, n) = (dims.in_channels, dims.out_channels);
        let lanes = dtypes.lanes;
        let [wants_x, wants_weight, wants_bias] = linear.wanted(grads);
        let matrices = |count: usize, dtype: Dtype| {
            let bytes = dtype.bytes();
            count * stride(dims, bytes) * bytes
        };
        let mut this = Self::default();
        if linear.packs_weights(dtypes) && (pass == Pass::Forward || wants_x) {
            this.weights = this.add(matrices(linear.packed_matrices(dims), lanes));
        }
        if pass == Pass::Forward && linear.has_bias() {
            this.bias = this.add(n * lanes.bytes());
        }
        if linear.unpacks_gradients(dims) && wants_weight {
            let dtype = linear.gradient_type(dims, dtypes);
            this.weight_grads = this.add(matrices(linear.packed_gradients(dims), dtype));
        }
        if wants_bias {
            let rows = (linear.biased_blades() * dims.batch) as i64;
            // SAFETY: computes a number.
            let bytes =
                unsafe { sys::fc_linear_column_sums_workspace(rows, n as i64, code(lanes)) };
            this.sums = this.add(bytes);
        }
        // Products run one after the other, in the same place.
        let rows = (linear.blades() * dims.batch).min(MAX_ROWS);
        let products = [
            (pass == Pass::Forward, n, rows),
            (wants_x, k, rows),
            (wants_weight, k, n),
        ];
        let wanted = products.into_iter().filter(|(wanted, ..)| *wanted);
        let sizes = wanted.map(|(_, m, n)| workspace_bytes(m, n, lanes));
        this.product = this.add(sizes.max().unwrap_or(0));
        this
    }

    /// The addresses of the parts of a workspace at `base`.
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

    /// The offset of a new part.
    fn add(&mut self, bytes: usize) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        offset as u64
    }
}

/// The elements from one packed matrix to the next: each starts as aligned as an allocation.
pub(super) fn stride(dims: &Dims, bytes: usize) -> usize {
    let elements = dims.in_channels * dims.out_channels;
    elements.next_multiple_of(WORKSPACE_ALIGNMENT / bytes)
}
