// Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.

use super::{Symmetry, SymmetryRow};

/// Every operator with the transformations that it commutes with. An operator without a row for one of
/// its options has that of the row without an option.
pub const SYMMETRIES: &[SymmetryRow] = &[
    SymmetryRow {
        operators: &[
            "sgp_norm",
            "fcgp_norm",
            "mv_linear",
            "mv_linear_sgp_norm",
            "steerable_product",
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
            "grade_rms",
            "gate",
            "grade_norm",
            "mv_silu",
            "mv_layer_norm",
            "norm",
            "grade_norms",
        ],
        option: None,
        definite: Symmetry::Versors,
        otherwise: Symmetry::Versors,
    },
    SymmetryRow {
        operators: &[
            "regressive_product",
        ],
        option: None,
        definite: Symmetry::EvenVersors,
        otherwise: Symmetry::EvenVersors,
    },
    SymmetryRow {
        operators: &[
            "dual",
            "undual",
        ],
        option: None,
        definite: Symmetry::EvenVersors,
        otherwise: Symmetry::Rotations,
    },
    SymmetryRow {
        operators: &[
            "sgp_norm",
            "fcgp_norm",
            "mv_linear_sgp_norm",
            "grade_rms",
        ],
        option: Some("norm rms"),
        definite: Symmetry::Versors,
        otherwise: Symmetry::Orthogonal,
    },
    SymmetryRow {
        operators: &[
            "mv_linear",
            "mv_linear_sgp_norm",
        ],
        option: Some("bias every_blade"),
        definite: Symmetry::None,
        otherwise: Symmetry::None,
    },
];
