//! Matrix products, as keys of a tuning table.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::names;
use super::precision::MatmulPrecision;
use crate::Dtype;

/// The forms of a product of the row-major matrices `x [rows, in]`, `w [out, in]` and `o [rows, out]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// `o = x w^T`.
    TimesTranspose,
    /// `x = o w`.
    Times,
    /// `w = o^T x`.
    TransposeTimes,
}

/// A matrix product of cuBLASLt: its sizes, types and alignment, by which a tuning table finds its algorithm.
///
/// It is written as cuBLASLt sees it, column-major: `d [m, n] = op(a) op(b)`, summed over `k`.
/// Row-major matrices are their own transposes in column-major order, so that
/// `o^T = w x^T` takes `w` transposed and `x` as it is, `x^T = w^T o^T` takes both as they are, and
/// `w^T = x^T o` takes `o` transposed.
///
/// The names of the fields are the keys in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    pub(crate) form: Form,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// The number of such products.
    pub(crate) parts: usize,
    /// The distances in elements from `a`, `b` and `d` of one part to the same matrix of the next; 0 for a single part.
    pub(crate) strides: [usize; 3],
    /// The type of `a` and `b`.
    #[serde(with = "names::dtype")]
    pub(crate) operands: Dtype,
    /// The type of `d` and of the bias.
    #[serde(with = "names::dtype")]
    pub(crate) result: Dtype,
    pub(crate) precision: MatmulPrecision,
    /// The distance in elements from the bias `[m]` of one part to that of the next. The bias is added to every column.
    pub(crate) bias: Option<usize>,
    /// The alignment of `a`, `b` and `d` in bytes, for all parts, at most 256.
    pub(crate) alignment: [u32; 3],
}

/// Displays `m x n x k`, the type, and all that is out of the ordinary.
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
    /// The floating-point operations of all parts.
    pub fn flops(&self) -> f64 {
        [self.m, self.n, self.k, self.parts]
            .map(|size| size as f64)
            .iter()
            .product::<f64>()
            * 2.0
    }
}
