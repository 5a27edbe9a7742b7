//! Options that several operators share.

use flashcliff_kernels::named_option;

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

    /// The name, as [`FromStr`](std::str::FromStr) reads it.
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

    /// The name, as [`FromStr`](std::str::FromStr) reads it.
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

    /// The name, as [`FromStr`](std::str::FromStr) reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Scalar => "scalar",
            Self::EveryBlade => "every_blade",
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

    /// The name, as [`FromStr`](std::str::FromStr) reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutInGrade => "out_in_grade",
            Self::GradeInOut => "grade_in_out",
        }
    }
}

named_option!(Norm, "norm");
named_option!(Invariant, "invariant");
named_option!(Bias, "bias", old "all" => Self::EveryBlade);
named_option!(WeightLayout, "weight layout");
