//! The workspace of a pass.

use flashcliff_sys as sys;

use super::kernels::ByGrade;
use super::problem::Problem;
use super::steps::Steps;
use crate::cuda::spans::WORKSPACE_ALIGNMENT;
use crate::operator::Pass;

/// The parts of a workspace, as addresses, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    /// The weights in the order of the products, in the type of operands: `[paths, in, out]`.
    pub(super) weights: u64,
    /// The path products of a block or their gradients, for all grades, in the type of operands.
    formed: u64,
    /// The product of a block `[blades, rows, out]` in the type of sums, or its gradient in the type of operands.
    pub(super) product: u64,
    /// The powers of two of a scaled block.
    pub(super) scales: Scales,
    /// The gradients of the weights, in parts. A group has its gradients at the entry of its first grade.
    pub(super) weight_grads: ByGrade<u64>,
    /// The workspace of cuBLASLt.
    pub(super) blas: u64,
    pub(super) bytes: usize,
}

/// The addresses of the powers of two of a scaled block (see `fc_block_scales`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scales {
    pub(super) weights: u64,
    pub(super) rows: u64,
    pub(super) grads: u64,
    pub(super) sums: u64,
    pub(super) path_grads: i32,
}

impl Scales {
    /// The exponent `e` such that a sum of `summed` products, times 2^-e, is below 2^15 if all factors are.
    pub(super) fn path_grads(summed: usize) -> i32 {
        15 + summed.next_power_of_two().ilog2() as i32
    }

    fn at(self, base: u64) -> Self {
        Self {
            weights: base + self.weights,
            rows: base + self.rows,
            grads: base + self.grads,
            sums: base + self.sums,
            path_grads: self.path_grads,
        }
    }
}

impl Space {
    /// `wanted`: whether the gradients of the operands are computed, and whether the gradients of the weights are.
    pub(super) fn new(problem: &Problem, wanted: [bool; 2]) -> Self {
        let Problem { dims, dtypes, .. } = problem;
        let blocks = problem.blocks();
        let (forward, [of_operands, of_weights]) = (problem.pass == Pass::Forward, wanted);
        let (operand, sum) = (problem.operands().bytes(), dtypes.arithmetic().bytes());
        let mut this = Self::default();
        if forward || of_operands {
            let weights = problem.grades.order.len() * dims.in_channels * dims.out_channels;
            this.weights = this.add(weights * operand);
        }
        let product = problem.grades.blades() * blocks.rows * dims.out_channels;
        this.product = this.add(product * if forward { sum } else { operand });
        let formed = problem.grades.path_products() * blocks.rows * dims.in_channels;
        this.formed = this.add(formed * operand);
        if problem.is_scaled() {
            this.add_scales(blocks.rows, dims.out_channels);
        }
        if of_weights && !forward {
            for products in problem.products() {
                let width = products.width();
                let len = products.members() * products.parts() * width * dims.out_channels;
                this.weight_grads[products.grade()] = this.add(len * sum);
            }
        }
        // Products run one after the other, and share the same memory.
        let of_block = |count| Steps::new(problem, &this, count).all(wanted);
        let products = blocks.sizes().flat_map(of_block);
        let blas = products.map(|product| product.problem.workspace_bytes());
        let blas = blas.max().unwrap_or(0);
        this.blas = this.add(blas);
        this
    }

    /// The addresses of the parts, in a workspace at `base`.
    pub(super) fn at(self, base: u64) -> Self {
        Self {
            weights: base + self.weights,
            formed: base + self.formed,
            product: base + self.product,
            scales: self.scales.at(base),
            weight_grads: self.weight_grads.map(|offset| base + offset),
            blas: base + self.blas,
            bytes: self.bytes,
        }
    }

    /// The addresses of the path products of each grade in a block of `count` rows.
    pub(super) fn formed(&self, problem: &Problem, count: usize) -> ByGrade<u64> {
        let lanes = count * problem.dims.in_channels * problem.operands().bytes();
        let mut places = ByGrade::default();
        let mut next = self.formed;
        for grade in &problem.grades.all {
            places[grade.grade] = next;
            next += (grade.blades.len() * grade.paths.len() * lanes) as u64;
        }
        places
    }

    fn add_scales(&mut self, rows: usize, out_channels: usize) {
        const EXPONENT: usize = size_of::<i32>();
        self.scales = Scales {
            weights: self.add(sys::FC_WEIGHT_SCALES as usize * EXPONENT),
            rows: self.add(sys::FC_MAX_GRADES as usize * rows * EXPONENT),
            grads: self.add(sys::FC_MAX_GRADES as usize * rows * EXPONENT),
            sums: self.add(2 * sys::FC_MAX_PATHS as usize * EXPONENT),
            path_grads: Scales::path_grads(out_channels),
        };
    }

    /// Adds a part to the workspace and returns its offset.
    fn add(&mut self, bytes: usize) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        offset as u64
    }
}
