//! Options that several operators share.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The gate of an operand: a function of its scalar component that multiplies every blade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// No gate.
    None,
    /// `(1 + erf(x / sqrt 2)) / 2`: the scalar becomes GELU of itself.
    #[default]
    Gelu,
    /// The tanh form of GELU: `(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `1 / (1 + exp(-x))`.
    Silu,
    /// The fast form of GELU: `1 / (1 + exp(-1.702 x))`.
    Sigmoid,
}

impl Gate {
    /// All gates.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Gelu,
        Self::GeluTanh,
        Self::Silu,
        Self::Sigmoid,
    ];

    /// The name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu-tanh",
            Self::Silu => "silu",
            Self::Sigmoid => "sigmoid",
        }
    }
}

/// The normalisation of a product: per grade and batch element, by the root of a mean over channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// None.
    None,
    /// The mean of the sum of squares of all coefficients, flash-clifford's norm. **Not equivariant** in
    /// an algebra with vectors that square to different signs or to zero: boosts and motors change a sum
    /// of squares.
    Rms,
    /// The mean of `|<x_g reverse(x_g)>_0|`, which every versor leaves alone; the same as
    /// [`Rms`](Self::Rms), bit for bit, where all vectors square to one sign.
    ///
    /// A form with both signs is smoothed: its magnitude is `sqrt(q^2 + eps^2)`, and nothing more is added
    /// under the root, so that it is `sqrt(eps)` for zeros, as the other. Blades with a null vector are
    /// left out, as in GATr's norm; but the pseudoscalar, which a versor can only flip, is normalised by its
    /// own square in every algebra. A grade that has no invariant at all stays as it is; only algebras
    /// with several null vectors have such grades.
    ///
    /// Source: the forms of CGENN (arXiv 2305.11141, section 3), L-GATr (arXiv 2405.14806) and GATr
    /// (arXiv 2305.18415), here grade by grade as flash-clifford normalises.
    #[default]
    Invariant,
}

impl Norm {
    /// All normalisations.
    pub const ALL: [Self; 3] = [Self::None, Self::Rms, Self::Invariant];

    /// The name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rms => "rms",
            Self::Invariant => "invariant",
        }
    }
}

/// The invariant by which [`mv_silu`](crate::ops::mv_silu) gates a grade above 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// The quadratic form `q(x_g)`.
    #[default]
    Mag2,
    /// The smooth norm `(q(x_g)^2 + 1e-16)^(1/4)`.
    Norm,
}

impl Invariant {
    /// All invariants.
    pub const ALL: [Self; 2] = [Self::Mag2, Self::Norm];

    /// The name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mag2 => "mag2",
            Self::Norm => "norm",
        }
    }
}

/// The bias of a linear map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bias {
    /// None.
    None,
    /// On the scalar blade, which every orthogonal transformation leaves alone.
    #[default]
    Scalar,
    /// On every blade, as flash-clifford's layer does it. **Not equivariant**: it singles out
    /// directions in space. For compatibility only.
    EveryBlade,
}

impl Bias {
    /// All kinds of bias.
    pub const ALL: [Self; 3] = [Self::None, Self::Scalar, Self::EveryBlade];

    /// The name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Scalar => "scalar",
            Self::EveryBlade => "every-blade",
        }
    }
}

/// The order of the axes of the weight of a linear map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightLayout {
    /// `[out, in, grades]`, as CGENN has it.
    #[default]
    OutInGrade,
    /// `[grades, in, out]`, as flash-clifford has it. On CUDA this is what products read: nothing is copied first,
    /// but for small matrices.
    GradeInOut,
}

impl WeightLayout {
    /// All layouts.
    pub const ALL: [Self; 2] = [Self::OutInGrade, Self::GradeInOut];

    /// The name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutInGrade => "out-in-grade",
            Self::GradeInOut => "grade-in-out",
        }
    }
}

macro_rules! named {
    ($type:ty, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let found = Self::ALL.into_iter().find(|option| option.name() == text);
                found.ok_or_else(|| Error::UnknownOption {
                    what: $what,
                    expected: Self::ALL.map(Self::name).join(", "),
                    got: text.to_owned(),
                })
            }
        }
    };
}

named!(Gate, "gate");
named!(Norm, "norm");
named!(Invariant, "invariant");
named!(Bias, "bias");
named!(WeightLayout, "weight layout");
