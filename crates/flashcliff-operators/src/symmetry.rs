//! The transformations that operators commute with.

use std::fmt;

/// The transformations of the vectors that an operator commutes with: the result is the same whether they act on the
/// inputs of the operator or on its output. A versor `w` of parity `s` acts as `x -> w (x_even + s x_odd) w^-1`.
///
/// Groups that coincide in an algebra have the name of the larger one. For example, if all vectors square to one sign,
/// every versor is orthogonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Symmetry {
    /// All versors: reflections and all products of them, with boosts and null translations where the
    /// metric has them. Pin(p, q, r).
    Versors,
    /// Products of an even number of reflections. Odd ones change the sign of the result.
    EvenVersors,
    /// Versors that also preserve the Euclidean length of coordinates: reflections and rotations within
    /// the vectors that square to +1 and within those that square to -1. O(p) x O(q): no boosts, no
    /// translations.
    Orthogonal,
    /// Orthogonal versors of determinant 1. Others change the sign of the result.
    Rotations,
    /// No transformation.
    None,
}

impl Symmetry {
    /// All groups.
    pub const ALL: [Self; 5] = [
        Self::Versors,
        Self::EvenVersors,
        Self::Orthogonal,
        Self::Rotations,
        Self::None,
    ];

    /// The name, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Versors => "all versors",
            Self::EvenVersors => "even versors",
            Self::Orthogonal => "orthogonal of the Euclidean coordinates",
            Self::Rotations => "rotations only",
            Self::None => "none",
        }
    }
}

impl Symmetry {
    /// The group with its name.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Versors => "all versors, Pin(p, q, r)",
            Self::EvenVersors => "even versors, Spin(p, q, r)",
            Self::Orthogonal => "orthogonal versors, O(p) x O(q)",
            Self::Rotations => "orthogonal versors of determinant 1",
            Self::None => "no transformation",
        }
    }
}

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A group of transformations that commute with an operator, by default or with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// The setting and the choice that the law is of; none for the operator with all other choices. Operators of the library know their
    /// `norm` and `bias`, so laws are of these settings.
    pub option: Option<(&'static str, &'static str)>,
    /// The choice that the law is of, if it has its own function, such as the kind of a product.
    pub function: Option<&'static str>,
    /// The symmetry where all vectors square to one sign.
    pub definite: Symmetry,
    /// The symmetry in all other algebras.
    pub otherwise: Symmetry,
}

impl Law {
    /// The law of an operator that commutes with the same transformations in every algebra.
    pub const fn always(symmetry: Symmetry) -> Self {
        Self {
            option: None,
            function: None,
            definite: symmetry,
            otherwise: symmetry,
        }
    }

    /// All versors.
    pub const VERSORS: Self = Self::always(Symmetry::Versors);

    /// The law with a choice of a setting.
    pub const fn with(self, setting: &'static str, choice: &'static str) -> Self {
        Self {
            option: Some((setting, choice)),
            ..self
        }
    }

    /// The law of a choice that has its own function.
    pub const fn of(self, function: &'static str) -> Self {
        Self {
            function: Some(function),
            ..self
        }
    }

    /// The law of the norm `rms`, which boosts and translations change.
    pub const RMS: Self = Self {
        definite: Symmetry::Versors,
        ..Self::always(Symmetry::Orthogonal)
    }
    .with("norm", "rms");

    /// The law of a bias on every blade.
    pub const EVERY_BLADE: Self = Self::always(Symmetry::None).with("bias", "every_blade");
}
