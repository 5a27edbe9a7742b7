# Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.
"""Every operator: its tensors, its options, what its gradient needs."""

from __future__ import annotations

from .._ops.op import Op, Option

SGP_NORM = Op(
    "sgp_norm",
    ("x", "y", "weight"),
    (
        Option("gate", "str", "gelu", "gate"),
        Option("norm", "str", "invariant", "norm"),
        Option("eps", "float", 1e-6, "eps"),
        Option("left", "int[]?", None, "left"),
        Option("right", "int[]?", None, "right"),
    ),
    parameters=("weight",),
    saves=True,
    autocast=True,
)
FCGP_NORM = Op(
    "fcgp_norm",
    ("x", "y", "weight"),
    (
        Option("gate", "str", "gelu", "gate"),
        Option("norm", "str", "invariant", "norm"),
        Option("eps", "float", 1e-6, "eps"),
        Option("left", "int[]?", None, "left"),
        Option("right", "int[]?", None, "right"),
        Option("block_bytes", "int?", None, None),
    ),
    parameters=("weight",),
    saves=True,
    undoes_norm=True,
    autocast=True,
)
MV_LINEAR = Op(
    "mv_linear",
    ("x", "weight", "bias?"),
    (
        Option("per_grade", "bool", True, "per_grade"),
        Option("bias_mode", "str", "scalar", "bias"),
        Option("grades", "int[]?", None, "grades"),
        Option("weight_layout", "str", "out_in_grade", "weight_layout"),
    ),
    parameters=("weight", "bias"),
    says=(("bias", "bias"),),
    autocast=True,
)
MV_LINEAR_SGP_NORM = Op(
    "mv_linear_sgp_norm",
    ("x", "linear_weight", "linear_bias?", "weight"),
    (
        Option("per_grade", "bool", True, "per_grade"),
        Option("bias_mode", "str", "scalar", "bias"),
        Option("grades", "int[]?", None, "grades"),
        Option("weight_layout", "str", "out_in_grade", "weight_layout"),
        Option("gate", "str", "gelu", "gate"),
        Option("norm", "str", "invariant", "norm"),
        Option("eps", "float", 1e-6, "eps"),
        Option("recompute", "bool", False, "recompute"),
    ),
    parameters=("linear_weight", "linear_bias", "weight"),
    says=(("linear_bias", "bias"),),
    saves=True,
    autocast=True,
)
STEERABLE_PRODUCT = Op(
    "steerable_product",
    ("x", "r", "weight", "a?", "l?"),
    (),
    parameters=("weight", "a"),
    says=(("a", "normalize"), ("l", "first_order")),
    autocast=True,
)
PRODUCT = Op(
    "product",
    ("x", "y"),
    (
        Option("kind", "str", "geometric", "kind"),
        Option("left", "int[]?", None, "left"),
        Option("right", "int[]?", None, "right"),
    ),
    autocast=True,
)
SANDWICH = Op(
    "sandwich",
    ("x", "y"),
    (
        Option("left", "int[]?", None, "left"),
        Option("right", "int[]?", None, "right"),
    ),
    autocast=True,
)
REVERSE = Op(
    "reverse",
    ("x",),
    (),
    linear=True,
)
GRADE_INVOLUTION = Op(
    "grade_involution",
    ("x",),
    (),
    linear=True,
)
CLIFFORD_CONJUGATE = Op(
    "clifford_conjugate",
    ("x",),
    (),
    linear=True,
)
DUAL = Op(
    "dual",
    ("x",),
    (),
    linear=True,
)
UNDUAL = Op(
    "undual",
    ("x",),
    (),
    linear=True,
)
GRADE_RMS = Op(
    "grade_rms",
    ("x",),
    (
        Option("norm", "str", "invariant", "norm"),
        Option("eps", "float", 1e-6, "eps"),
    ),
    saves=True,
)
GATE = Op(
    "gate",
    ("x",),
    (
        Option("gate", "str", "gelu", "gate"),
    ),
)
GRADE_NORM = Op(
    "grade_norm",
    ("x", "a"),
    (),
    parameters=("a",),
)
MV_SILU = Op(
    "mv_silu",
    ("x", "a", "b"),
    (
        Option("invariant", "str", "mag2", "invariant"),
    ),
    parameters=("a", "b"),
)
MV_LAYER_NORM = Op(
    "mv_layer_norm",
    ("x", "a"),
    (),
    parameters=("a",),
    saves=True,
)
NORM = Op(
    "norm",
    ("x",),
    (),
)
GRADE_NORMS = Op(
    "grade_norms",
    ("x",),
    (),
)
OPS: tuple[Op, ...] = (
    SGP_NORM,
    FCGP_NORM,
    MV_LINEAR,
    MV_LINEAR_SGP_NORM,
    STEERABLE_PRODUCT,
    PRODUCT,
    SANDWICH,
    REVERSE,
    GRADE_INVOLUTION,
    CLIFFORD_CONJUGATE,
    DUAL,
    UNDUAL,
    GRADE_RMS,
    GATE,
    GRADE_NORM,
    MV_SILU,
    MV_LAYER_NORM,
    NORM,
    GRADE_NORMS,
)
"""All operators."""
