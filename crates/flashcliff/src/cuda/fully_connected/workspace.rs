//! What the workspace of a pass holds.

use flashcliff_sys as sys;

use super::blocked::Blocked;
use super::products::Products;
use crate::cuda::dtype::Dtypes;
use crate::cuda::matmul::{MatmulPrecision, workspace_bytes};
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::{Dims, Pass};

/// By grade of the algebra.
pub(super) type ByGrade<T> = [T; sys::FC_MAX_GRADES as usize];

/// The parts of a workspace, as addresses, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    /// The weights `[paths, in, out]` in the order of the products, in the type of the lanes.
    pub(super) weights: u64,
    /// The path products of a block. Forward, and for the gradients of the weights, grades take turns; the
    /// gradients of all of them lie beside each other.
    pub(super) formed: u64,
    pub(super) formed_grads: ByGrade<u64>,
    /// The product of a block `[blades, rows, out]` in the type of sums, or its gradient in that of the lanes.
    pub(super) product: u64,
    /// The gradients of the weights, in parts.
    pub(super) weight_grads: ByGrade<u64>,
    /// cuBLASLt's own.
    pub(super) blas: u64,
    pub(super) bytes: usize,
}

impl Space {
    /// `wanted` are the gradients of the operands and of the weights.
    pub(super) fn new(
        blocked: &Blocked,
        dims: &Dims,
        pass: Pass,
        dtypes: Dtypes,
        wanted: [bool; 2],
    ) -> Self {
        let blocks = blocked.blocks(dims, pass, dtypes);
        // The precision does not matter here.
        let precision = MatmulPrecision::default();
        let products = |grade| Products::new(grade, dims, dtypes, blocks, precision);
        let (forward, [of_operands, of_weights]) = (pass == Pass::Forward, wanted);
        let (lane, sum) = (dtypes.lanes.bytes(), dtypes.arithmetic().bytes());
        let mut this = Self::default();
        if forward || of_operands {
            let weights = blocked.path_count() * dims.in_channels * dims.out_channels;
            this.weights = this.add(weights * lane);
        }
        let output = blocked.output_blades() * blocks.rows * dims.out_channels;
        this.product = this.add(output * if forward { sum } else { lane });
        let mut blas = 0;
        let mut formed = 0;
        let start = this.bytes;
        for grade in &blocked.grades {
            let products = products(grade);
            let mut workspace = |m, n| blas = workspace_bytes(m, n, dtypes.lanes).max(blas);
            let (rows, width, out) = (products.rows(), products.width(), dims.out_channels);
            if of_operands {
                this.formed_grads[grade.grade] = this.add(rows * width * sum);
                workspace(width, rows);
            }
            if forward || of_weights {
                formed = (rows * width * lane).max(formed);
                workspace(out, if forward { rows } else { width });
            }
        }
        this.formed = start as u64;
        this.add(formed.saturating_sub(this.bytes - start));
        if of_weights {
            for grade in &blocked.grades {
                let products = products(grade);
                let len = products.parts() * products.width() * dims.out_channels;
                this.weight_grads[grade.grade] = this.add(len * sum);
            }
        }
        this.blas = this.add(blas);
        this
    }

    /// The parts of a workspace at `base`.
    pub(super) fn at(self, base: u64) -> Self {
        Self {
            weights: base + self.weights,
            formed: base + self.formed,
            formed_grads: self.formed_grads.map(|offset| base + offset),
            product: base + self.product,
            weight_grads: self.weight_grads.map(|offset| base + offset),
            blas: base + self.blas,
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
