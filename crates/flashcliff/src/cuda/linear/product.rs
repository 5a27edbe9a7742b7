//! One matrix product, as cuBLASLt is asked for it.

use super::MatmulPrecision;
use crate::Dtype;

/// The most workspace that cuBLASLt gets.
const MOST_WORKSPACE: usize = 32 << 20;

/// Without any, cuBLASLt does without its kernels for sm_90, which need a few bytes.
const LEAST_WORKSPACE: usize = 1 << 16;

/// How many partial results of a small product fit its workspace.
const MOST_SPLITS: usize = 32;

/// cuBLASLt reads a bias by vectors of this many bytes, whatever alignment it is told of.
pub(super) const BIAS_ALIGNMENT: u64 = 16;

/// The products of the linear map, row-major, of `x [rows, in]`, `w [out, in]` and
/// `o [rows, out]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// `o = x w^T`.
    Output,
    /// `x = o w`.
    GradX,
    /// `w = o^T x`.
    GradWeight,
}

/// A product as cuBLASLt sees it, column-major: `d [m, n] = op(a) op(b)`, summed over `k`.
///
/// Row-major matrices are their own transposes in column-major order, so that
/// `o^T = w x^T` takes `w` transposed and `x` as it is, `x^T = w^T o^T` takes both as they are, and
/// `w^T = x^T o` takes `o` transposed. A `w` that is `[in, out]` is as it is where the other is transposed and the
/// converse, and as a gradient comes of `o` and `x` in the other order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    pub(super) form: Form,
    /// Whether `w` is `[in, out]`: its transpose takes its place.
    pub(super) in_out: bool,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// How many such products there are.
    pub(super) parts: usize,
    /// The elements from `a`, `b` and `d` of one part to those of the next; 0 for a single one.
    pub(super) strides: [usize; 3],
    /// The type of `a` and `b`.
    pub(super) operands: Dtype,
    /// The type of `d` and of the bias.
    pub(super) result: Dtype,
    pub(super) precision: MatmulPrecision,
    /// The elements from the bias `[m]` of one part, which is added to every column, to that of the next.
    pub(super) bias: Option<usize>,
    /// The alignment of `a`, `b` and `d` in bytes, of all parts, at most 256.
    pub(super) alignment: [u32; 3],
}

impl Problem {
    /// Whether `a` and `b` are transposed.
    pub(super) fn transposed(&self) -> [bool; 2] {
        match self.form {
            Form::Output => [!self.in_out, false],
            Form::GradX => [self.in_out, false],
            Form::GradWeight => [false, true],
        }
    }

    /// The bytes of workspace, for partial sums. They depend on the sizes alone: so the algorithm, and
    /// with it the rounding, does not depend on how much memory a caller has to spare.
    pub(super) fn workspace_bytes(&self) -> usize {
        let tiles = tiles(self.m, self.n).saturating_mul(self.parts);
        if self.parts > 1 || tiles >= MANY_TILES / 2 {
            return LEAST_WORKSPACE;
        }
        let bytes = self.m * self.n * self.operands.arithmetic().bytes();
        let bytes = bytes.saturating_mul(MOST_SPLITS).min(MOST_WORKSPACE);
        bytes.max(LEAST_WORKSPACE).next_multiple_of(256)
    }
}

/// The side of a tile of a result.
const TILE: usize = 128;
/// Tiles that fill a large GPU.
pub(super) const MANY_TILES: usize = 128;

/// The tiles of a matrix.
pub(super) fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE))
}

/// A product with the addresses of its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) problem: Problem,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) d: u64,
    /// Of the bias, if there is one.
    pub(super) bias: u64,
    /// Whether to add to what `d` holds.
    pub(super) accumulate: bool,
}

/// The alignment of an address and of all that lie some bytes behind each other, at most the 256 bytes
/// of an allocation.
pub(super) fn alignment(address: u64, stride: usize) -> u32 {
    1 << (address | stride as u64).trailing_zeros().min(8)
}
