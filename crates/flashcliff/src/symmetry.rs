//! The transformations that each operator commutes with.

use std::fmt;

use crate::operator::{Kind, Operator};
use crate::{Bias, Norm};

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

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Operators that commute with the same transformations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymmetryRow {
    /// The names of the operators.
    pub operators: &'static [&'static str],
    /// The option that these operators have, if the row is for one.
    pub option: Option<&'static str>,
    /// The symmetry where all vectors square to one sign.
    pub definite: Symmetry,
    /// The symmetry in all other algebras.
    pub otherwise: Symmetry,
}

impl SymmetryRow {
    /// The symmetry in an algebra.
    pub fn of(&self, algebra: &cayley::Algebra) -> Symmetry {
        match algebra.has_euclidean_norms() {
            true => self.definite,
            false => self.otherwise,
        }
    }
}

const BIAS: &str = "bias every_blade";
const RMS: &str = "norm rms";

/// Every operator with the transformations that it commutes with. An operator without a row for one of
/// its options has that of the row without an option.
pub const SYMMETRIES: &[SymmetryRow] = &[
    SymmetryRow {
        operators: &[
            "sgp_norm",
            "fcgp_norm",
            "mv_linear",
            "mv_linear_sgp_norm",
            "grade_rms",
            "grade_norm",
            "steerable_product",
            "mv_silu",
            "mv_layer_norm",
            "geometric_product",
            "exterior_product",
            "left_contraction",
            "right_contraction",
            "scalar_product",
            "commutator_product",
            "sandwich",
            "reverse",
            "grade_involution",
            "clifford_conjugate",
            "norm",
            "grade_norms",
            "gate",
        ],
        option: None,
        definite: Symmetry::Versors,
        otherwise: Symmetry::Versors,
    },
    SymmetryRow {
        operators: &["sgp_norm", "fcgp_norm", "mv_linear_sgp_norm", "grade_rms"],
        option: Some(RMS),
        definite: Symmetry::Versors,
        otherwise: Symmetry::Orthogonal,
    },
    SymmetryRow {
        operators: &["regressive_product"],
        option: None,
        definite: Symmetry::EvenVersors,
        otherwise: Symmetry::EvenVersors,
    },
    SymmetryRow {
        operators: &["dual", "undual"],
        option: None,
        definite: Symmetry::EvenVersors,
        otherwise: Symmetry::Rotations,
    },
    SymmetryRow {
        operators: &["mv_linear", "mv_linear_sgp_norm"],
        option: Some(BIAS),
        definite: Symmetry::None,
        otherwise: Symmetry::None,
    },
];

impl Operator {
    /// The transformations that the operator commutes with, for its algebra and options.
    pub fn symmetry(&self) -> Symmetry {
        let options = self.breaking_options();
        let own = |row: &&SymmetryRow| {
            row.operators.contains(&self.name())
                && row.option.is_none_or(|option| options.contains(&option))
        };
        // Rows of options that break more symmetries come later.
        let row = SYMMETRIES.iter().rev().find(own);
        row.map_or(Symmetry::None, |row| row.of(self.algebra().cayley()))
    }

    /// The options of this operator that have rows of their own.
    fn breaking_options(&self) -> Vec<&'static str> {
        let (norm, bias) = match self.kind() {
            Kind::Lanes(lane) => (lane.norm(), Bias::None),
            Kind::FullyConnected(product) => (product.norm(), Bias::None),
            Kind::Linear(linear) => (Norm::None, linear.bias()),
            // Derivatives have names of their own, and no row.
            Kind::Zero(_) | Kind::Composed(_) => (Norm::None, Bias::None),
            Kind::LinearSgp(layer) => (layer.product().norm(), layer.linear().bias()),
        };
        let norm = (norm == Norm::Rms).then_some(RMS);
        let bias = (bias == Bias::EveryBlade).then_some(BIAS);
        norm.into_iter().chain(bias).collect()
    }
}
