//! The errors of the generator.

use std::fmt;

use cayley::Signature;
use flashcliff_program::plan::{Excess, Refusal};

/// The reason why kernels cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A program needs more tensors or sums than kernels have room for.
    TooLarge {
        /// The algebra of the program, if it is an operator of one.
        signature: Option<Signature>,
        /// The program, and the number that is too large.
        excess: Excess,
    },
    /// A program sums values over the batch that are not zero where all lane inputs are: threads that have no row would add them.
    ConstantSum {
        /// The algebra of the program, if it is an operator of one.
        signature: Option<Signature>,
        /// The name of the program.
        program: String,
    },
    /// A program that a user wants compiled is not an operator.
    Refused(Refusal),
    /// Derivatives that a user wants compiled need more tensors or sums than kernels have room for.
    SecondOrder {
        /// The derivative, and the number that is too large.
        excess: Excess,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge {
                signature: Some(signature),
                excess,
            } => write!(f, "{signature}: {excess}"),
            Self::TooLarge { excess, .. } => write!(f, "{excess}"),
            Self::ConstantSum { signature, program } => {
                if let Some(signature) = signature {
                    write!(f, "{signature}: ")?;
                }
                write!(
                    f,
                    "the program `{program}` has a sum over the batch that is not zero where all inputs are"
                )
            }
            Self::Refused(refusal) => refusal.fmt(f),
            Self::SecondOrder { excess } => write!(
                f,
                "{excess}: leave out the second order of the program, or split the program"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooLarge { excess, .. } | Self::SecondOrder { excess } => Some(excess),
            Self::Refused(refusal) => Some(refusal),
            Self::ConstantSum { .. } => None,
        }
    }
}
