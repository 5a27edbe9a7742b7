"""Groups of options, checked, as operators take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..algebra import Algebra, HasAlgebra, grades_of
from . import checks


def gated(gate: Any, norm: Any, eps: Any) -> tuple[str, str, float]:
    """Those of a gated product with its norm."""
    if type(gate) is str and type(norm) is str and type(eps) is float:
        return gate, norm, eps
    return checks.word("gate", gate), checks.word("norm", norm), checks.number("eps", eps)


def sides(
    algebra: Algebra | HasAlgebra | tuple[int, ...],
    left: Iterable[int] | None,
    right: Iterable[int] | None,
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The grades of two operands."""
    if left is None and right is None:
        return None, None
    return grades_of(algebra, "left", left), grades_of(algebra, "right", right)


def linear_map(
    algebra: Algebra | HasAlgebra | tuple[int, ...],
    per_grade: Any,
    bias_mode: Any,
    grades: Iterable[int] | None,
    weight_layout: Any,
) -> tuple[bool, str, tuple[int, ...] | None, str]:
    """Those of a linear map."""
    return (
        checks.flag("per_grade", per_grade),
        checks.word("bias_mode", bias_mode),
        grades_of(algebra, "grades", grades),
        checks.word("weight_layout", weight_layout),
    )
