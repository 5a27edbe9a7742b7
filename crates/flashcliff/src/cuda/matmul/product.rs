//! One matrix product, as cuBLASLt is asked for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::MatmulPrecision;
use crate::Dtype;
use crate::cuda::tuning::table::names;

/// What NVIDIA recommends as the workspace of cuBLASLt on its largest GPUs; the most it gets.
const MOST_WORKSPACE: usize = 32 << 20;

/// Without any, cuBLASLt does without its kernels for sm_90, which need a few bytes.
const LEAST_WORKSPACE: usize = 1 << 16;

/// How many partial results of a small product fit its workspace.
const MOST_SPLITS: usize = 32;

/// cuBLASLt reads a bias by vectors of this many bytes, whatever alignment it is told of.
pub(in crate::cuda) const BIAS_ALIGNMENT: u64 = 16;

/// The products, row-major, of `x [rows, in]`, `w [out, in]` and `o [rows, out]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::cuda) enum Form {
    /// `o = x w^T`.
    TimesTranspose,
    /// `x = o w`.
    Times,
    /// `w = o^T x`.
    TransposeTimes,
}

/// A product as cuBLASLt sees it, column-major: `d [m, n] = op(a) op(b)`, summed over `k`.
///
/// Row-major matrices are their own transposes in column-major order, so that
/// `o^T = w x^T` takes `w` transposed and `x` as it is, `x^T = w^T o^T` takes both as they are, and
/// `w^T = x^T o` takes `o` transposed.
///
/// Tuning tables have it as their key, under these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cuda) struct Problem {
    pub(in crate::cuda) form: Form,
    pub(in crate::cuda) m: usize,
    pub(in crate::cuda) n: usize,
    pub(in crate::cuda) k: usize,
    /// How many such products there are.
    pub(in crate::cuda) parts: usize,
    /// The elements from `a`, `b` and `d` of one part to those of the next; 0 for a single one.
    pub(in crate::cuda) strides: [usize; 3],
    /// The type of `a` and `b`.
    #[serde(with = "names::dtype")]
    pub(in crate::cuda) operands: Dtype,
    /// The type of `d` and of the bias.
    #[serde(with = "names::dtype")]
    pub(in crate::cuda) result: Dtype,
    pub(in crate::cuda) precision: MatmulPrecision,
    /// The elements from the bias `[m]` of one part, which is added to every column, to that of the next.
    pub(in crate::cuda) bias: Option<usize>,
    /// The alignment of `a`, `b` and `d` in bytes, of all parts, at most 256.
    pub(in crate::cuda) alignment: [u32; 3],
}

/// `m x n x k`, the type and all that is out of the ordinary.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            m,
            n,
            k,
            operands,
            precision,
            ..
        } = self;
        let form = match self.form {
            Form::TimesTranspose => "tn",
            Form::Times => "nn",
            Form::TransposeTimes => "nt",
        };
        write!(f, "{m}x{n}x{k} {form} {operands}")?;
        if *precision != MatmulPrecision::Highest {
            write!(f, " {precision}")?;
        }
        if self.result != self.operands {
            write!(f, " to {}", self.result)?;
        }
        if self.parts > 1 {
            write!(f, ", {} parts", self.parts)?;
        }
        if self.bias.is_some() {
            f.write_str(", bias")?;
        }
        match self.alignment {
            [256, 256, 256] => Ok(()),
            [a, b, d] => write!(f, ", aligned to {a}, {b}, {d}"),
        }
    }
}

impl Problem {
    /// Whether `a` and `b` are transposed.
    pub(super) fn transposed(&self) -> [bool; 2] {
        match self.form {
            Form::TimesTranspose => [true, false],
            Form::Times => [false, false],
            Form::TransposeTimes => [false, true],
        }
    }

    /// The floating-point operations of all parts.
    pub(in crate::cuda) fn flops(&self) -> f64 {
        [self.m, self.n, self.k, self.parts]
            .map(|size| size as f64)
            .iter()
            .product::<f64>()
            * 2.0
    }

    /// The bytes of workspace, for partial sums. They depend on the sizes alone: so the algorithm, and
    /// with it the rounding, does not depend on how much memory a caller has to spare, but on the problem, the GPU, the
    /// version of cuBLASLt and the tuning table.
    pub(in crate::cuda) fn workspace_bytes(&self) -> usize {
        if self.parts > 1 || tiles(self.m, self.n) >= MANY_TILES / 2 {
            return LEAST_WORKSPACE;
        }
        let partial = self
            .m
            .saturating_mul(self.n)
            .saturating_mul(self.operands.arithmetic().bytes());
        let bytes = partial.saturating_mul(MOST_SPLITS).min(MOST_WORKSPACE);
        bytes.max(LEAST_WORKSPACE).next_multiple_of(256)
    }
}

/// The side of a tile of a result.
const TILE: usize = 128;
/// Tiles that fill a large GPU.
pub(in crate::cuda) const MANY_TILES: usize = 128;

/// The tiles of a matrix.
pub(in crate::cuda) fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE))
}

/// A product with the addresses of its operands.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Product {
    pub(in crate::cuda) problem: Problem,
    pub(in crate::cuda) a: u64,
    pub(in crate::cuda) b: u64,
    pub(in crate::cuda) d: u64,
    /// Of the bias, if there is one.
    pub(in crate::cuda) bias: u64,
    /// What the product is multiplied by.
    pub(in crate::cuda) scale: f64,
    /// Whether to add to what `d` holds.
    pub(in crate::cuda) accumulate: bool,
}

impl Product {
    /// A product `[m, n]` summed over `k`, or several with the strides of their matrices, of some types.
    pub(in crate::cuda) fn new(
        form: Form,
        (m, n, k): (usize, usize, usize),
        (parts, strides): (usize, [usize; 3]),
        [operands, result]: [Dtype; 2],
        [a, b, d]: [u64; 3],
        precision: MatmulPrecision,
    ) -> Self {
        // What a single part is told of the next would only make another plan.
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

    /// The product with a bias, if there is one: its address, and the elements to that of the next part.
    pub(in crate::cuda) fn with_bias(mut self, bias: Option<(u64, usize)>) -> Self {
        self.problem.bias = bias.map(|(_, stride)| stride);
        self.bias = bias.map_or(0, |(address, _)| address);
        self
    }
}

/// A single product, and no strides.
pub(in crate::cuda) const ONE: (usize, [usize; 3]) = (1, [0; 3]);

/// The alignment of an address and of all that lie some bytes behind each other, at most the 256 bytes
/// of an allocation.
fn alignment(address: u64, stride: usize) -> u32 {
    1 << (address | stride as u64).trailing_zeros().min(8)
}
