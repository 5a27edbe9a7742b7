//! The passes of an operator.

use std::fmt;

/// One of the two passes of an operator.
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
