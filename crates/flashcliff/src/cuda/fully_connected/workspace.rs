//! What the workspace of a pass holds.

use super::kernels::ByGrade;
use super::problem::Problem;
use crate::cuda::matmul::workspace_bytes;
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::Pass;

/// The parts of a workspace, as addresses, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    /// The weights in the order of the products, in the type of the lanes: `[paths, in, out]`, or transposed
    /// `[out, paths, in]` for each output grade.
    pub(super) weights: u64,
    /// The path products of a block, or their gradients, of all grades in the type of the lanes.
    formed: u64,
    /// The product of a block `[blades, rows, out]` in the type of sums, or its gradient in that of the lanes.
    pub(super) product: u64,
    /// The gradient of the product transposed, for grades that are multiplied so.
    pub(super) transposed: u64,
    /// The gradients of the weights, in parts: of a group at its first grade.
    pub(super) weight_grads: ByGrade<u64>,
    /// cuBLASLt's own.
    pub(super) blas: u64,
    pub(super) bytes: usize,
}

impl Space {
    /// `wanted` are the gradients of the operands and of the weights.
    pub(super) fn new(problem: &Problem, wanted: [bool; 2]) -> Self {
        let Problem { dims, dtypes, .. } = problem;
        let blocks = problem.blocks();
        let (forward, [of_operands, of_weights]) = (problem.pass == Pass::Forward, wanted);
        let (lane, sum) = (dtypes.lanes.bytes(), dtypes.arithmetic().bytes());
        let mut this = Self::default();
        if forward || of_operands {
            let weights = problem.grades.order.len() * dims.in_channels * dims.out_channels;
            this.weights = this.add(weights * lane);
        }
        let product = problem.grades.blades() * blocks.rows * dims.out_channels;
        this.product = this.add(product * if forward { sum } else { lane });
        let formed = problem.grades.path_products() * blocks.rows * dims.in_channels;
        this.formed = this.add(formed * lane);
        let mut blas = 0;
        let mut transposes = false;
        for products in problem.products() {
            let mut workspace = |m, n| blas = workspace_bytes(m, n, dtypes.lanes).max(blas);
            let (rows, width) = (products.rows(blocks.rows), products.width());
            if forward {
                workspace(dims.out_channels, rows);
                continue;
            }
            if of_operands {
                workspace(width, rows);
            }
            if of_weights {
                workspace(dims.out_channels, width);
                transposes |= products.transposes();
                let len = products.members() * products.parts() * width * dims.out_channels;
                this.weight_grads[products.grade()] = this.add(len * sum);
            }
        }
        if transposes {
            this.transposed = this.add(product * lane);
        }
        this.blas = this.add(blas);
        this
    }

    /// The parts of a workspace at `base`.
    pub(super) fn at(self, base: u64) -> Self {
        Self {
            weights: base + self.weights,
            formed: base + self.formed,
            product: base + self.product,
            transposed: base + self.transposed,
            weight_grads: self.weight_grads.map(|offset| base + offset),
            blas: base + self.blas,
            bytes: self.bytes,
        }
    }

    /// The path products of each grade in a block of so many rows.
    pub(super) fn formed(&self, problem: &Problem, count: usize) -> ByGrade<u64> {
        let lanes = count * problem.dims.in_channels * problem.dtypes.lanes.bytes();
        let mut places = ByGrade::default();
        let mut next = self.formed;
        for grade in &problem.grades.all {
            places[grade.grade] = next;
            next += (grade.blades.len() * grade.paths.len() * lanes) as u64;
        }
        places
    }

    /// The offset of a new part.
    fn add(&mut self, bytes: usize) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        offset as u64
    }
}
