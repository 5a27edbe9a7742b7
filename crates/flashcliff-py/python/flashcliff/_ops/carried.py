"""The grades that multivectors carry through involutions and duals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..algebra import AlgebraLike, Grades, as_algebra, grades_of
from .op import Op


class Carried(NamedTuple):
    """The grades of an input and of the output."""

    given: tuple[int, ...]
    reached: tuple[int, ...]
    """The grades of the output, in ascending order."""
    sizes: list[int]
    """The number of blades of each grade of the algebra."""

    @staticmethod
    def of(op: Op, algebra: AlgebraLike, grades: Grades, shape: Sequence[int]) -> Carried:
        """The grades of an input ``x`` of a shape, which must be that of a multivector of these."""
        algebra = as_algebra(algebra)
        given = grades_of(algebra, "grades", grades) or ()
        sizes = [math.comb(algebra.dim, grade) for grade in range(algebra.dim + 1)]
        count = sum(sizes[grade] for grade in given)
        if len(shape) < 2 or shape[0] != count:
            raise ValueError(
                f"{op.name}: tensor `x` must be [{count}, *batch, channels], got {list(shape)}"
            )
        is_dual = op.name in ("dual", "undual")
        reached = tuple(sorted(algebra.dim - grade for grade in given)) if is_dual else given
        return Carried(given, reached, sizes)
