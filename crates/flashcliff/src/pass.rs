//! The two calls of an eager step.

use std::fmt;

/// One of the two calls of an eager step, by which sizes, bytes, choices and times go:
/// [`Operator::forward`](crate::Operator::forward) or [`Operator::backward`](crate::Operator::backward).
///
/// It does not say what is computed: each call runs its own program. Derivatives are operators, and
/// [`Operator::run`](crate::Operator::run) knows no pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Computes the output from the inputs.
    Forward,
    /// Computes the gradients of the inputs from the gradient of the output.
    Backward,
}

impl Pass {
    /// The name: `forward` or `backward`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
