//! One matrix product, as cuBLASLt is asked for it.

use super::MatmulPrecision;
use crate::Dtype;

/// What NVIDIA recommends as the workspace of cuBLASLt on its largest GPUs; the most it gets.
const MOST_WORKSPACE: usize = 32 << 20;

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
/// `w^T = x^T o` takes `o` transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    pub(super) form: Form,
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
    /// Whether a bias `[m]` is added to every column.
    pub(super) bias: bool,
    /// The alignment of `a`, `b` and `d` in bytes, of all parts, at most 256.
    pub(super) alignment: [u32; 3],
}

impl Problem {
    /// Whether `a` and `b` are transposed.
    pub(super) fn transposed(&self) -> [bool; 2] {
        match self.form {
            Form::Output => [true, false],
            Form::GradX => [false, false],
            Form::GradWeight => [false, true],
        }
    }

    /// The bytes of workspace. They depend on the size of the result alone: so the algorithm, and
    /// with it the rounding, does not depend on how much memory a caller has to spare.
    pub(super) fn workspace_bytes(&self) -> usize {
        workspace_bytes(self.m, self.n, self.operands)
    }
}

/// The workspace of a product with a result `[m, n]`.
pub(super) fn workspace_bytes(m: usize, n: usize, operands: Dtype) -> usize {
    let partial = m
        .saturating_mul(n)
        .saturating_mul(operands.arithmetic().bytes());
    let bytes = partial.saturating_mul(MOST_SPLITS).min(MOST_WORKSPACE);
    bytes.next_multiple_of(256)
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
