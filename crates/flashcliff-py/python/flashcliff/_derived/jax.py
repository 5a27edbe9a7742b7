# Written by `cargo xtask gen` from the operators, crates/flashcliff-program/src/operators.
"""The functions of :mod:`flashcliff.jax`, which documents them together."""

from __future__ import annotations

from .._jax.call import Array, call, unary
from .._ops import checks
from .._ops.surprises import gates_without_scalars as warn_of_gates
from ..algebra import AlgebraLike, Grades, grades_of
from . import table

__all__ = [
    "clifford_conjugate",
    "commutator_product",
    "dual",
    "exterior_product",
    "fcgp_norm",
    "gate",
    "geometric_product",
    "grade_involution",
    "grade_norm",
    "grade_norms",
    "grade_rms",
    "left_contraction",
    "mv_layer_norm",
    "mv_linear",
    "mv_linear_sgp_norm",
    "mv_silu",
    "norm",
    "product",
    "regressive_product",
    "reverse",
    "right_contraction",
    "sandwich",
    "scalar_product",
    "sgp_norm",
    "steerable_product",
    "undual",
]


def sgp_norm(
    x: Array,
    y: Array,
    weight: Array,
    algebra: AlgebraLike,
    *,
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    left: Grades = None,
    right: Grades = None,
) -> Array:
    """As :func:`flashcliff.functional.sgp_norm`."""
    options = (
        checks.choice("gate", gate),
        checks.choice("norm", norm),
        checks.number("eps", eps),
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
    )
    warn_of_gates("sgp_norm", options[0], options[3], options[4])
    return call(table.SGP_NORM, (x, y, weight), algebra, options)


def fcgp_norm(
    x: Array,
    y: Array,
    weight: Array,
    algebra: AlgebraLike,
    *,
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    left: Grades = None,
    right: Grades = None,
    block_bytes: int | None = None,
) -> Array:
    """As :func:`flashcliff.functional.fcgp_norm`."""
    options = (
        checks.choice("gate", gate),
        checks.choice("norm", norm),
        checks.number("eps", eps),
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
        checks.block_bytes(block_bytes),
    )
    warn_of_gates("fcgp_norm", options[0], options[3], options[4])
    return call(table.FCGP_NORM, (x, y, weight), algebra, options)


def mv_linear(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    algebra: AlgebraLike,
    per_grade: bool = True,
    bias_mode: str = "scalar",
    grades: Grades = None,
    weight_layout: str = "out_in_grade",
) -> Array:
    """As :func:`flashcliff.functional.mv_linear`."""
    options = (
        checks.flag("per_grade", per_grade),
        checks.choice("bias_mode", bias_mode),
        None if grades is None else grades_of(algebra, "grades", grades),
        checks.choice("weight_layout", weight_layout),
    )
    return call(table.MV_LINEAR, (x, weight, bias), algebra, options)


def mv_linear_sgp_norm(
    x: Array,
    linear_weight: Array,
    linear_bias: Array | None,
    weight: Array,
    algebra: AlgebraLike,
    *,
    per_grade: bool = True,
    bias_mode: str = "scalar",
    grades: Grades = None,
    weight_layout: str = "out_in_grade",
    gate: str = "gelu",
    norm: str = "invariant",
    eps: float = 1e-6,
    recompute: bool = False,
) -> Array:
    """As :func:`flashcliff.functional.mv_linear_sgp_norm`."""
    options = (
        checks.flag("per_grade", per_grade),
        checks.choice("bias_mode", bias_mode),
        None if grades is None else grades_of(algebra, "grades", grades),
        checks.choice("weight_layout", weight_layout),
        checks.choice("gate", gate),
        checks.choice("norm", norm),
        checks.number("eps", eps),
        checks.flag("recompute", recompute),
    )
    warn_of_gates("mv_linear_sgp_norm", options[4], options[2], options[2])
    return call(table.MV_LINEAR_SGP_NORM, (x, linear_weight, linear_bias, weight), algebra, options)


def steerable_product(
    x: Array,
    r: Array,
    weight: Array,
    a: Array | None = None,
    l: Array | None = None,  # noqa: E741, the name in the formula
    *,
    algebra: AlgebraLike,
) -> Array:
    """As :func:`flashcliff.functional.steerable_product`."""
    return call(table.STEERABLE_PRODUCT, (x, r, weight, a, l), algebra, ())


def product(
    x: Array,
    y: Array,
    algebra: AlgebraLike,
    kind: str = "geometric",
    *,
    left: Grades = None,
    right: Grades = None,
) -> Array:
    """As :func:`flashcliff.functional.product`."""
    options = (
        checks.choice("kind", kind),
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
    )
    return call(table.PRODUCT, (x, y), algebra, options)


def geometric_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.geometric_product`."""
    return product(x, y, algebra, "geometric", left=left, right=right)


def exterior_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.exterior_product`."""
    return product(x, y, algebra, "exterior", left=left, right=right)


def regressive_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.regressive_product`."""
    return product(x, y, algebra, "regressive", left=left, right=right)


def left_contraction(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.left_contraction`."""
    return product(x, y, algebra, "left_contraction", left=left, right=right)


def right_contraction(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.right_contraction`."""
    return product(x, y, algebra, "right_contraction", left=left, right=right)


def scalar_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.scalar_product`."""
    return product(x, y, algebra, "scalar", left=left, right=right)


def commutator_product(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.commutator_product`."""
    return product(x, y, algebra, "commutator", left=left, right=right)


def sandwich(
    x: Array, y: Array, algebra: AlgebraLike, *, left: Grades = None, right: Grades = None
) -> Array:
    """As :func:`flashcliff.functional.sandwich`."""
    options = (
        None if left is None else grades_of(algebra, "left", left),
        None if right is None else grades_of(algebra, "right", right),
    )
    return call(table.SANDWICH, (x, y), algebra, options)


def reverse(x: Array, algebra: AlgebraLike, *, grades: Grades = None) -> Array:
    """As :func:`flashcliff.functional.reverse`."""
    return unary(table.REVERSE, x, algebra, grades)


def grade_involution(x: Array, algebra: AlgebraLike, *, grades: Grades = None) -> Array:
    """As :func:`flashcliff.functional.grade_involution`."""
    return unary(table.GRADE_INVOLUTION, x, algebra, grades)


def clifford_conjugate(x: Array, algebra: AlgebraLike, *, grades: Grades = None) -> Array:
    """As :func:`flashcliff.functional.clifford_conjugate`."""
    return unary(table.CLIFFORD_CONJUGATE, x, algebra, grades)


def dual(x: Array, algebra: AlgebraLike, *, grades: Grades = None) -> Array:
    """As :func:`flashcliff.functional.dual`."""
    return unary(table.DUAL, x, algebra, grades)


def undual(x: Array, algebra: AlgebraLike, *, grades: Grades = None) -> Array:
    """As :func:`flashcliff.functional.undual`."""
    return unary(table.UNDUAL, x, algebra, grades)


def grade_rms(
    x: Array, algebra: AlgebraLike, *, norm: str = "invariant", eps: float = 1e-6
) -> Array:
    """As :func:`flashcliff.functional.grade_rms`."""
    options = (
        checks.choice("norm", norm),
        checks.number("eps", eps),
    )
    return call(table.GRADE_RMS, (x,), algebra, options)


def gate(x: Array, algebra: AlgebraLike, *, gate: str = "gelu") -> Array:
    """As :func:`flashcliff.functional.gate`."""
    options = (
        checks.choice("gate", gate),
    )
    return call(table.GATE, (x,), algebra, options)


def grade_norm(x: Array, a: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.grade_norm`."""
    return call(table.GRADE_NORM, (x, a), algebra, ())


def mv_silu(
    x: Array, a: Array, b: Array, algebra: AlgebraLike, *, invariant: str = "mag2"
) -> Array:
    """As :func:`flashcliff.functional.mv_silu`."""
    options = (
        checks.choice("invariant", invariant),
    )
    return call(table.MV_SILU, (x, a, b), algebra, options)


def mv_layer_norm(x: Array, a: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.mv_layer_norm`."""
    return call(table.MV_LAYER_NORM, (x, a), algebra, ())


def norm(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.norm`."""
    return call(table.NORM, (x,), algebra, ())


def grade_norms(x: Array, algebra: AlgebraLike) -> Array:
    """As :func:`flashcliff.functional.grade_norms`."""
    return call(table.GRADE_NORMS, (x,), algebra, ())
