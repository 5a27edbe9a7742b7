//! The errors of this crate.

use std::fmt;

use crate::{Group, ProductKind, Signature};

/// An error, with what was expected and what came instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A signature has more vectors than [`Signature::MAX_DIM`].
    DimensionTooLarge {
        /// Number of vectors that square to +1.
        p: usize,
        /// Number of vectors that square to −1.
        q: usize,
        /// Number of vectors that square to 0.
        r: usize,
    },
    /// A string is not a signature.
    InvalidSignature {
        /// The string.
        found: String,
    },
    /// A string is not a list of grades.
    InvalidGradeSet {
        /// The string.
        found: String,
    },
    /// A grade is larger than the dimension allows.
    GradeOutOfRange {
        /// The grade.
        grade: usize,
        /// The largest grade that exists.
        max: usize,
    },
    /// A string is not the name of a product.
    UnknownProduct {
        /// The string.
        found: String,
    },
    /// A string is not the name of a group.
    UnknownGroup {
        /// The string.
        found: String,
    },
    /// The maps that commute with a group are not known for a signature.
    NoEquivariantMaps {
        /// The group.
        group: Group,
        /// The signature.
        signature: Signature,
    },
    /// A string is not the name of a basis blade of the algebra.
    UnknownBlade {
        /// The string.
        found: String,
        /// The algebra that was asked.
        signature: Signature,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::DimensionTooLarge { p, q, r } => write!(
                f,
                "expected a signature with p + q + r <= {}, found Cl({p},{q},{r})",
                Signature::MAX_DIM
            ),
            Error::InvalidSignature { found } => write!(
                f,
                "expected a signature such as `3,0,1`, `cl301` or `Cl(3,0,1)`, found `{found}`"
            ),
            Error::InvalidGradeSet { found } => write!(
                f,
                "expected grades separated by commas such as `0,2`, or `none`, found `{found}`"
            ),
            Error::GradeOutOfRange { grade, max } => {
                write!(f, "expected a grade from 0 to {max}, found {grade}")
            }
            Error::UnknownProduct { found } => {
                write!(f, "expected a product, one of")?;
                for (position, kind) in ProductKind::ALL.iter().enumerate() {
                    let separator = if position == 0 { " " } else { ", " };
                    write!(f, "{separator}{kind}")?;
                }
                write!(f, "; found `{found}`")
            }
            Error::UnknownGroup { found } => {
                let [first, second] = Group::ALL;
                write!(f, "expected a group, {first} or {second}; found `{found}`")
            }
            Error::NoEquivariantMaps { group, signature } => write!(
                f,
                "expected a signature with p + q >= 1 and r <= 1 to list the maps that commute with {group}, found \
                 {signature}; the projections on single grades commute with it in every algebra"
            ),
            Error::UnknownBlade { found, signature } => {
                write!(f, "expected a basis blade of {signature}: `1`")?;
                if signature.dim() > 0 {
                    let first = signature.first_label();
                    let last = first + signature.dim() - 1;
                    let range = format_args!("from {first} to {last}");
                    write!(f, ", or `e` and vector numbers {range} in increasing order")?;
                }
                write!(f, "; found `{found}`")
            }
        }
    }
}

impl std::error::Error for Error {}
