//! What can go wrong.

use cayley::{GradeSet, Signature};

use crate::simd::Tier;

/// An error of this crate. Every check happens before any tensor is written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No kernels were generated for the algebra.
    #[error(
        "no kernels for {signature}: expected one of {shipped}; to add it, put ({}, {}, {}) into \
         codegen/src/spec/algebras.rs and run `cargo xtask gen`",
        signature.p(), signature.q(), signature.r()
    )]
    UnsupportedSignature {
        /// The signature asked for.
        signature: Signature,
        /// The names of those that exist.
        shipped: String,
    },
    /// No kernel was generated for these operand grades.
    #[error(
        "{operator} of {signature}: no kernel for grades ({left}) and ({right}), expected one of {shipped}"
    )]
    UnsupportedGrades {
        /// The operator.
        operator: String,
        /// The algebra.
        signature: Signature,
        /// The grades asked for.
        left: GradeSet,
        /// The grades asked for.
        right: GradeSet,
        /// The pairs that exist.
        shipped: String,
    },
    /// A grade set that does not belong to the algebra.
    #[error(transparent)]
    Algebra(#[from] cayley::Error),
    /// The data of a tensor does not fill its shape.
    #[error("a tensor of shape {shape:?} holds {expected} elements, got {got}")]
    LengthMismatch {
        /// The shape.
        shape: Vec<usize>,
        /// The elements of the shape.
        expected: usize,
        /// The elements given.
        got: usize,
    },
    /// A shape whose number of elements does not fit the address space, or of more than 4 axes.
    #[error("shape {shape:?} is too large")]
    ShapeTooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// A tensor has the wrong shape.
    #[error("{operator}: tensor `{tensor}` must be {expected}, got {got:?}")]
    ShapeMismatch {
        /// The operator.
        operator: String,
        /// The name of the tensor.
        tensor: String,
        /// The shape wanted.
        expected: String,
        /// The shape given.
        got: Vec<usize>,
    },
    /// The wrong number of tensors.
    #[error("{operator}: expected {expected} {what} ({names}), got {got}")]
    TensorCount {
        /// The operator.
        operator: String,
        /// `inputs` or `gradients`.
        what: &'static str,
        /// How many it takes.
        expected: usize,
        /// Their names.
        names: String,
        /// How many were given.
        got: usize,
    },
    /// A saved-statistics or workspace buffer of the wrong length.
    #[error("{operator}: the {buffer} buffer must hold at least {expected} elements, got {got}")]
    BufferTooSmall {
        /// The operator.
        operator: String,
        /// `saved` or `workspace`.
        buffer: &'static str,
        /// The elements needed.
        expected: usize,
        /// The elements given.
        got: usize,
    },
    /// An option that is not a number the operator can use.
    #[error("{option} must be {expected}, got {got}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it was.
        got: f64,
    },
    /// A name that no option has.
    #[error("unknown {what} `{got}`: expected one of {expected}")]
    UnknownOption {
        /// What the name is for.
        what: &'static str,
        /// The names there are.
        expected: String,
        /// The name given.
        got: String,
    },
    /// A SIMD tier that this CPU does not have.
    #[error("the CPU does not support the {tier:?} tier; available: {available}")]
    TierUnavailable {
        /// The tier.
        tier: Tier,
        /// Those it has.
        available: String,
    },
}
