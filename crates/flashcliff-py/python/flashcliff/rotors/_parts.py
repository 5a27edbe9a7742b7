"""Multivectors as one tensor for each blade that is not zero for sure, and their products."""

from __future__ import annotations

import torch
from torch import Tensor

from ..algebra import by_name

Parts = dict[int, Tensor]
"""The tensors of blades, by the index of the blade."""

Terms = tuple[tuple[int, int, int, int], ...]
"""Terms of a product: left blade, right blade, blade of the result, coefficient."""


@torch.compiler.assume_constant_result
def _terms(algebra: str) -> Terms:
    return by_name(algebra).terms()


@torch.compiler.assume_constant_result
def grades_by_blade(algebra: str) -> tuple[int, ...]:
    """The grade of each blade."""
    return by_name(algebra).grades


@torch.compiler.assume_constant_result
def _quadratic_terms(algebra: str, reversed_right: bool) -> Terms:
    """The terms of ``x x``, or ``x reverse(x)``, of grades 0 and 4, with products ``x_i x_k`` and ``x_k x_i`` in one."""
    grades = grades_by_blade(algebra)
    totals: dict[tuple[int, int, int], int] = {}
    for left, right, output, sign in _terms(algebra):
        if grades[output] not in (0, 4):
            continue
        key = (min(left, right), max(left, right), output)
        sign *= reverse_sign(grades[right]) if reversed_right else 1
        totals[key] = totals.get(key, 0) + sign
    return tuple((*key, total) for key, total in totals.items() if total)


@torch.compiler.assume_constant_result
def blades_with_squares(algebra: str) -> tuple[int, ...]:
    """The blades of grade 2 whose square is not zero."""
    grades = grades_by_blade(algebra)
    squares = ((left, output) for left, right, output, _ in _terms(algebra) if left == right)
    return tuple(left for left, output in squares if output == 0 and grades[left] == 2)


def reverse_sign(grade: int) -> int:
    """The sign that the reverse gives a grade."""
    return -1 if grade % 4 in (2, 3) else 1


def _sum(terms: Terms, x: Parts, y: Parts) -> Parts:
    result: Parts = {}
    for left, right, output, coefficient in terms:
        if left not in x or right not in y:
            continue
        term = x[left] * y[right]
        if abs(coefficient) != 1:
            term = abs(coefficient) * term
        if output not in result:
            result[output] = -term if coefficient < 0 else term
        elif coefficient < 0:
            result[output] = result[output] - term
        else:
            result[output] = result[output] + term
    return result


def product(algebra: str, x: Parts, y: Parts, keep: tuple[int, ...]) -> Parts:
    """The parts of the geometric product with the grades ``keep``."""
    grades = grades_by_blade(algebra)
    return _sum(tuple(t for t in _terms(algebra) if grades[t[2]] in keep), x, y)


def square(algebra: str, x: Parts) -> tuple[Tensor, Parts]:
    """``x x`` of a bivector, or of a 4-vector: the scalar and the 4-vector."""
    return _scalar_and_rest(x, _sum(_quadratic_terms(algebra, False), x, x))


def times_reverse(algebra: str, x: Parts) -> tuple[Tensor, Parts]:
    """``x reverse(x)`` of a multivector of even, or of odd grades: the scalar and the 4-vector."""
    return _scalar_and_rest(x, _sum(_quadratic_terms(algebra, True), x, x))


def _scalar_and_rest(x: Parts, result: Parts) -> tuple[Tensor, Parts]:
    scalar = result.pop(0, None)
    return (torch.zeros_like(next(iter(x.values()))) if scalar is None else scalar), result


def scaled(algebra: str, factor: tuple[Tensor, Tensor | None], q: Parts, x: Parts) -> Parts:
    """``(a + b Q) x``, where ``Q`` is a 4-vector and the result has the grades of ``x``."""
    a, b = factor
    result = {blade: a * value for blade, value in x.items()}
    if b is None or not q:
        return result
    grades = grades_by_blade(algebra)
    keep = tuple(sorted({grades[blade] for blade in x}))
    for blade, value in product(algebra, q, x, keep).items():
        result[blade] = result[blade] + b * value if blade in result else b * value
    return result
