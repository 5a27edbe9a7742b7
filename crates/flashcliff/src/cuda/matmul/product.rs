//! One matrix product, as it is described to cuBLASLt.

use crate::Dtype;
use crate::tuning_table::{Form, MatmulPrecision, Problem};

/// The largest workspace of a product, in bytes: NVIDIA's recommendation for cuBLASLt on its largest GPUs.
const MOST_WORKSPACE: usize = 32 << 20;

/// The smallest workspace of a product, in bytes. Without a workspace cuBLASLt does not use its kernels for sm_90,
/// which need a few bytes.
const LEAST_WORKSPACE: usize = 1 << 16;

/// The number of partial results of a small product that its workspace has room for, at most.
const MOST_SPLITS: usize = 32;

/// The smallest number of summands that is worth a partial result.
const SPLIT_SUMMANDS: usize = 64;

/// The alignment of a bias in bytes. cuBLASLt reads it by vectors of this size, whatever alignment it is told.
pub(crate) const BIAS_ALIGNMENT: u64 = 16;

impl Problem {
    /// Whether `a` and `b` are transposed.
    pub(super) fn transposed(&self) -> [bool; 2] {
        match self.form {
            Form::TimesTranspose => [true, false],
            Form::Times => [false, false],
            Form::TransposeTimes => [false, true],
        }
    }

    /// The bytes of workspace, for partial sums. They depend on the sizes alone. So the algorithm and its rounding
    /// depend on the problem, the GPU, the version of cuBLASLt and the tuning table, but not on how much memory a
    /// caller has to spare.
    pub(crate) fn workspace_bytes(&self) -> usize {
        if self.parts > 1 || tiles(self.m, self.n) >= MANY_TILES / 2 {
            return LEAST_WORKSPACE;
        }
        let partial = self
            .m
            .saturating_mul(self.n)
            .saturating_mul(self.operands.arithmetic().bytes());
        // More partial results than fill a GPU, or sums that are shorter, would only be more to add.
        let splits = MOST_SPLITS
            .min(MANY_TILES / tiles(self.m, self.n).max(1))
            .min(self.k / SPLIT_SUMMANDS);
        let bytes = partial.saturating_mul(splits).min(MOST_WORKSPACE);
        bytes.max(LEAST_WORKSPACE).next_multiple_of(256)
    }
}

/// The side of a tile of a result.
const TILE: usize = 128;
/// The number of tiles that fill a large GPU.
pub(crate) const MANY_TILES: usize = 128;

/// The number of tiles of a matrix.
pub(crate) fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE))
}

/// A product with the addresses of its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) problem: Problem,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) d: u64,
    /// The address of the bias; not used if there is none.
    pub(crate) bias: u64,
    /// The factor that the product is multiplied by.
    pub(crate) scale: f64,
    /// Whether the product is added to the values in `d`.
    pub(crate) accumulate: bool,
}

impl Product {
    /// A product `[m, n]` summed over `k`, for given types; or several, with the strides of their matrices.
    pub(crate) fn new(
        form: Form,
        (m, n, k): (usize, usize, usize),
        (parts, strides): (usize, [usize; 3]),
        [operands, result]: [Dtype; 2],
        [a, b, d]: [u64; 3],
        precision: MatmulPrecision,
    ) -> Self {
        // Strides of a single part would only make another plan for the same product.
        let strides = if parts > 1 { strides } else { [0; 3] };
        let aligned = |address, stride, dtype: Dtype| alignment(address, stride * dtype.bytes());
        Self {
            problem: Problem {
                form,
                m,
                n,
                k,
                parts,
                strides,
                operands,
                result,
                precision: precision.of(operands),
                bias: None,
                alignment: [
                    aligned(a, strides[0], operands),
                    aligned(b, strides[1], operands),
                    aligned(d, strides[2], result),
                ],
            },
            a,
            b,
            d,
            bias: 0,
            scale: 1.0,
            accumulate: false,
        }
    }

    /// Adds a bias to the product, if there is one: its address, and the distance in elements to that of the next part.
    pub(crate) fn with_bias(mut self, bias: Option<(u64, usize)>) -> Self {
        self.problem.bias = bias.map(|(_, stride)| stride);
        self.bias = bias.map_or(0, |(address, _)| address);
        self
    }
}

/// A single product, without strides.
pub(crate) const ONE: (usize, [usize; 3]) = (1, [0; 3]);

/// The alignment of an address and of all addresses at multiples of `stride` bytes after it, at most the 256 bytes of
/// an allocation.
fn alignment(address: u64, stride: usize) -> u32 {
    1 << (address | stride as u64).trailing_zeros().min(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_other_types_are_the_same_whatever_f32_is_rounded_to() {
        let problem = |operands, precision| {
            let types = [operands, Dtype::F32];
            Product::new(
                Form::Times,
                (8, 8, 8),
                (1, [0; 3]),
                types,
                [256; 3],
                precision,
            )
            .problem
        };
        for precision in [MatmulPrecision::Tf32, MatmulPrecision::Bf16] {
            for operands in [Dtype::F64, Dtype::Bf16, Dtype::F16] {
                let highest = problem(operands, MatmulPrecision::Highest);
                assert_eq!(problem(operands, precision), highest);
            }
            let highest = problem(Dtype::F32, MatmulPrecision::Highest);
            assert_ne!(problem(Dtype::F32, precision), highest);
        }
    }
}
