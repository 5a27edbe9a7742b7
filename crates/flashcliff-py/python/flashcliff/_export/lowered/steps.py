"""The steps of transformers that are neither linear maps nor attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _core
from ..operations import Operations, Tensor
from .layout import Channels, Token, channels_of, packed, unpacked
from .program import Program

__all__ = ["beside", "components", "frames", "gains", "lanes"]


def lanes(
    ops: Operations,
    evaluate: Any,
    program: Program,
    each: Channels,
    x: Token,
    row: Tensor | None,
    parameters: np.ndarray | None,
) -> Token:
    """A program whose inputs are neighbouring channels of tokens, and whose outputs are channels of other tokens."""
    inputs, first = [], [0, 0]
    for _, _, is_scalar in program.inputs:
        count = each.scalars if is_scalar else each.multivectors
        at = first[is_scalar]
        first[is_scalar] += count
        inputs.append(_lanes(ops, program, x, is_scalar, (at, count)))
    found = evaluate(ops, program, inputs, _of_channels(program, each, parameters), row, each)
    made: list[list[Tensor]] = [[], []]
    for tensor, (_, is_scalar) in zip(found, program.outputs, strict=True):
        made[is_scalar].append(tensor)
    mv = ops.concatenate(made[0], 2) if made[0] and each.multivectors else None
    s = ops.concatenate(made[1], 2) if made[1] and each.scalars else None
    return Token(mv, None if s is None else _rows(ops, s, each.scalars * len(made[1])))


def _lanes(
    ops: Operations, program: Program, x: Token, is_scalar: bool, place: tuple[int, int]
) -> Tensor:
    """The channels of an input, ``[components, rows, channels]``."""
    first, count = place
    of = x.scalars if is_scalar else x.multivectors
    total = sum(own[2] == is_scalar for own in program.inputs) * count
    if of is None:
        return np.zeros((1, 1, 1))
    if count != total:
        of = ops.slice(of, 1 if is_scalar else 2, first, first + count)
    return ops.reshape(of, [1, -1, count]) if is_scalar else of


def _rows(ops: Operations, s: Tensor, count: int) -> Tensor:
    return ops.reshape(s, [-1, count])


def _of_channels(program: Program, each: Channels, flat: np.ndarray | None) -> list[np.ndarray]:
    """The parameters of a program ``[count, 1, channels]``, from their numbers one after another."""
    found, first = [], 0
    for _, count, is_scalar in program.parameters:
        channels = each.scalars if is_scalar else each.multivectors
        assert flat is not None, "a program without its parameters"
        own = flat[first : first + channels * count].reshape(channels, count)
        found.append(own.T[:, None])
        first += channels * count
    return found


def gains(
    ops: Operations,
    geometry: dict[str, Any],
    channels: Channels,
    heads: int | None,
    x: Token,
    flat: np.ndarray,
) -> Token:
    """Tokens times factors of grades and channels, or of heads."""
    mv = s = None
    grades = _core.Algebra(*geometry["signature"]).blade_grades
    count = max(grades) + 1
    of_blades = [1] * grades.count(1) if geometry.get("vectors") else grades
    if heads is None:
        own = flat[: channels.multivectors * count].reshape(channels.multivectors, count)
        mv = own.T[of_blades][:, None]
        s = flat[channels.multivectors * count :][None]
    else:
        each = [np.arange(own) * heads // max(own, 1) for own in channels]
        mv, s = flat[each[0]][None, None], flat[each[1]][None]
    return Token(
        None if x.multivectors is None else ops.multiply(x.multivectors, mv),
        None if x.scalars is None else ops.multiply(x.scalars, s),
    )


def beside(ops: Operations, x: Token, extra: Token) -> Token:
    """The channels of tokens, then the channels of other tokens."""

    def joined(a: Tensor | None, b: Tensor | None, axis: int) -> Tensor | None:
        parts = [own for own in (a, b) if own is not None]
        return ops.concatenate(parts, axis) if parts else None

    return Token(joined(x.multivectors, extra.multivectors, 2), joined(x.scalars, extra.scalars, 1))


def components(ops: Operations, record: dict[str, Any], x: Token) -> Token:
    """Multivectors as scalars, or scalars as multivectors."""
    blades, channels = record["blades"], channels_of(record["channels"])
    if record["inverse"]:
        return unpacked(ops, x.scalars, blades, channels)
    return Token(None, packed(ops, x, blades, channels))


def frames(ops: Operations, geometry: dict[str, Any], inverse: bool, x: Token, of: Token) -> Token:
    """The multivectors of tokens in frames, by minors of a matrix for each row."""
    if x.multivectors is None:
        return x
    algebra = _core.Algebra(*geometry["signature"])
    norms, grades = np.array(algebra.blade_norms, float), np.array(algebra.blade_grades)
    dim = int((grades == 1).sum())
    # [entries of vectors, rows, 1]
    entries = ops.transpose(ops.reshape(of.scalars, [-1, dim * dim, 1]), (1, 0, 2))
    if geometry.get("vectors"):
        return x._replace(
            multivectors=_of_grade(ops, entries, x.multivectors, (norms[1 : 1 + dim], inverse))
        )
    # For two blades their exterior product: a blade and a sign.
    terms = {(left, right): (out, sign) for left, right, out, sign in algebra.terms("exterior")}
    found = [ops.slice(x.multivectors, 0, 0, 1)]
    minors = entries
    for grade in range(1, dim + 1):
        blades = np.flatnonzero(grades == grade)
        if grade > 1:
            minors = _minors(ops, terms, grades, grade, entries, minors)
        own = ops.slice(x.multivectors, 0, int(blades[0]), int(blades[-1]) + 1)
        found.append(_of_grade(ops, minors, own, (norms[blades], inverse)))
    return x._replace(multivectors=ops.concatenate(found, 0))


def _minors(
    ops: Operations,
    exterior: dict[tuple[int, int], tuple[int, int]],
    grades: np.ndarray,
    grade: int,
    entries: Tensor,
    below: Tensor,
) -> Tensor:
    """The minors of a grade ``[size * size, rows, 1]``, from the minors of the grade below: an expansion along the first vector of each
    blade."""
    vectors, others, own = (np.flatnonzero(grades == at) for at in (1, grade - 1, grade))
    factors: dict[int, tuple[int, int, int]] = {}
    for j in map(int, reversed(vectors)):
        for rest in others:
            found = exterior.get((j, int(rest)))
            if found is not None:
                factors[found[0]] = j, int(rest), found[1]
    left, right, places, signs = [], [], [], []
    for column, blade in enumerate(own):
        vector, below_it, sign = factors[int(blade)]
        for i in vectors:
            for other in others:
                found = exterior.get((int(i), int(other)))
                if found is None:
                    continue
                left.append(int((i - vectors[0]) * len(vectors) + vector - vectors[0]))
                right.append(int((other - others[0]) * len(others) + below_it - others[0]))
                places.append(int((found[0] - own[0]) * len(own) + column))
                signs.append(sign * found[1])
    products = ops.multiply(ops.choose(entries, 0, left), ops.choose(below, 0, right))
    matrix = np.zeros((len(own) ** 2, len(places)))
    matrix[places, range(len(places))] = signs
    flat = ops.matmul(matrix, ops.reshape(products, [len(places), -1]))
    return ops.reshape(flat, [len(own) ** 2, -1, 1])


def _of_grade(ops: Operations, minors: Tensor, x: Tensor, by: tuple[np.ndarray, bool]) -> Tensor:
    """A matrix for each row times the blades of a grade; with an inverse its transpose, with the metric on both sides."""
    norms, inverse = by
    size, total = len(norms), None
    for column in range(size):
        places = [column * size + row if inverse else row * size + column for row in range(size)]
        own = ops.choose(minors, 0, places)
        part = ops.multiply(own, ops.slice(x, 0, column, column + 1))
        if inverse:
            signs = (norms * norms[column]).reshape(-1, 1, 1)
            part = part if (signs == 1).all() else ops.multiply(part, signs)
        total = part if total is None else ops.add(total, part)
    return total
