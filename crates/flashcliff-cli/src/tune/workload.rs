//! Operators, shapes and types on the command line.

use std::str::FromStr;

use cayley::Signature;
use clap::ValueEnum;
use flashcliff::ops::{self, LinearOptions, ProductOptions};
use flashcliff::{Algebra, Dims, Dtype, Operator};

use crate::error::Error;

/// An operator that has choices to tune.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum OperatorName {
    /// The grade-wise linear map, with a matrix per grade and a bias on the scalar.
    MvLinear,
    /// The fully connected product with GELU gates and RMS norm.
    FcgpNorm,
    /// Both.
    All,
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypeName {
    F32,
    F64,
    Bf16,
    F16,
}

/// A precision of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PrecisionName {
    Highest,
    Tf32,
    Bf16,
    F16,
}

/// The batch and the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    batch: usize,
    in_channels: usize,
    out_channels: usize,
}

/// A text that is not a shape.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected BATCHxCHANNELS or BATCHxINxOUT with numbers from 1 on, got `{got}`")]
pub(crate) struct NoShape {
    got: String,
}

impl FromStr for Shape {
    type Err = NoShape;

    fn from_str(text: &str) -> Result<Self, NoShape> {
        let number = |part: &str| {
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.then(|| part.parse::<usize>().ok()).flatten();
            number.filter(|&number| number > 0)
        };
        let numbers: Option<Vec<usize>> = text.split('x').map(number).collect();
        let (batch, in_channels, out_channels) = match numbers.as_deref() {
            Some(&[batch, channels]) => (batch, channels, channels),
            Some(&[batch, from, to]) => (batch, from, to),
            _ => {
                return Err(NoShape {
                    got: text.to_owned(),
                });
            }
        };
        Ok(Self {
            batch,
            in_channels,
            out_channels,
        })
    }
}

impl Shape {
    /// The sizes of a call.
    pub(crate) fn dims(self) -> Dims {
        Dims {
            batch: self.batch,
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            scalar_channels: 0,
        }
    }
}

impl TypeName {
    /// The type of the library.
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F64 => Dtype::F64,
            Self::Bf16 => Dtype::Bf16,
            Self::F16 => Dtype::F16,
        }
    }
}

/// An operator at a shape.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) operator: Operator,
    pub(super) dims: Dims,
}

/// All operators at all shapes.
///
/// # Errors
/// An algebra without kernels, tensors that are too large.
pub(super) fn jobs(
    names: &[OperatorName],
    algebra: Signature,
    shapes: &[Shape],
) -> Result<Vec<Job>, Error> {
    let algebra = Algebra::new(algebra)?;
    if !algebra.is_compiled() {
        let signature = algebra.signature();
        let (p, q, r) = (signature.p(), signature.q(), signature.r());
        return Err(flashcliff::Error::UnsupportedOnCuda {
            operator: "tune".to_owned(),
            reason: format!(
                "this build has no CUDA kernels for {signature}; build with FLASHCLIFF_ALGEBRAS=\"{p},{q},{r}\""
            ),
        }
        .into());
    }
    let wanted = |name| names.contains(&name) || names.contains(&OperatorName::All);
    let mut operators = Vec::new();
    if wanted(OperatorName::MvLinear) {
        operators.push(ops::mv_linear(algebra, &LinearOptions::default())?);
    }
    if wanted(OperatorName::FcgpNorm) {
        operators.push(ops::fcgp_norm(algebra, &ProductOptions::default())?);
    }
    let mut jobs = Vec::new();
    for operator in &operators {
        for shape in shapes {
            let dims = shape.dims();
            let shapes = operator.inputs().iter().map(|spec| spec.shape(&dims));
            let shapes: Vec<Vec<usize>> = shapes.collect();
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            jobs.push(Job {
                operator: operator.clone(),
                dims: operator.bind(&shapes)?,
            });
        }
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_two_or_three_numbers() {
        let shape = |batch, in_channels, out_channels| Shape {
            batch,
            in_channels,
            out_channels,
        };
        assert_eq!("4096x512".parse(), Ok(shape(4096, 512, 512)));
        assert_eq!("7x5x3".parse(), Ok(shape(7, 5, 3)));
        for text in [
            "",
            "4096",
            "x",
            "4096x",
            "0x5",
            "5x0",
            "1x2x3x4",
            "-1x5",
            "+1x5",
            "1 x 5",
            "axb",
            "99999999999999999999x1",
        ] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn all_operators_come_once_at_every_shape() {
        let names = [OperatorName::All, OperatorName::MvLinear];
        let shapes = ["8x2".parse().unwrap(), "8x2x3".parse().unwrap()];
        let jobs = jobs(&names, Signature::of(3, 0, 0), &shapes).unwrap();
        let names: Vec<&str> = jobs.iter().map(|job| job.operator.name()).collect();
        assert_eq!(names, ["mv_linear", "mv_linear", "fcgp_norm", "fcgp_norm"]);
        let out = jobs.iter().map(|job| job.dims.out_channels);
        assert_eq!(out.collect::<Vec<_>>(), [2, 3, 2, 3]);
    }

    #[test]
    fn what_no_memory_could_hold_is_refused() {
        let shapes = ["9223372036854775807x9223372036854775807".parse().unwrap()];
        let names = [OperatorName::MvLinear];
        let error = jobs(&names, Signature::of(3, 0, 0), &shapes).unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
    }
}
