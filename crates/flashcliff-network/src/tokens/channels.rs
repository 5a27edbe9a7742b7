//! The channels of tokens.

use super::programs::Kinds;
use crate::Error;

/// The number of multivector channels and of scalar channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Channels {
    /// Multivector channels.
    pub multivectors: usize,
    /// Scalar channels.
    pub scalars: usize,
}

impl Channels {
    /// So many multivector channels and scalar channels.
    pub const fn new(multivectors: usize, scalars: usize) -> Self {
        Self {
            multivectors,
            scalars,
        }
    }

    /// The numbers of a token of GATr, whose algebra Cl(3,0,1) has 16 blades.
    pub const fn width(self) -> usize {
        self.width_over(16)
    }

    /// The numbers of a token over an algebra of so many blades.
    pub const fn width_over(self, blades: usize) -> usize {
        blades * self.multivectors + self.scalars
    }

    /// Checks that tokens of these channels have a number.
    ///
    /// # Errors
    /// [`Error::Option`], by the name of what has these channels.
    pub(super) fn check(self, option: &'static str) -> Result<(), Error> {
        match self {
            Self {
                multivectors: 0,
                scalars: 0,
            } => Err(Error::Option {
                option,
                expected: "a multivector channel or a scalar channel",
                got: 0.0,
            }),
            _ => Ok(()),
        }
    }

    /// Which of both there are.
    pub(super) const fn kinds(self) -> Kinds {
        Kinds {
            multivectors: self.multivectors > 0,
            scalars: self.scalars > 0,
        }
    }

    /// These channels and others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self::new(
            self.multivectors + others.multivectors,
            self.scalars + others.scalars,
        )
    }

    /// Both numbers times a factor.
    #[must_use]
    pub const fn times(self, factor: usize) -> Self {
        Self::new(self.multivectors * factor, self.scalars * factor)
    }
}
