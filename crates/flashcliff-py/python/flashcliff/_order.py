"""The order of the vectors of a metric, and flashcliff's."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

from .algebra import Algebra

__all__ = ["Order", "blades_of", "order_of"]

_OURS = (0.0, 1.0, -1.0)
"""Squares in the order of flashcliff's vectors."""


@dataclass(frozen=True)
class Order:
    """How the blades of a metric correspond to the blades of flashcliff's algebra of the same signature.

    Blade ``i`` of the metric is ``signs[i]`` times blade ``places[i]`` of the algebra, since both are products of the
    same vectors, each in its own order.
    """

    signature: tuple[int, int, int]
    """The signature ``(p, q, r)`` of the metric."""
    vectors: tuple[int, ...]
    """The place of each vector of the metric among the algebra's."""
    places: tuple[int, ...]
    sources: tuple[int, ...]
    """The inverse of ``places``."""
    signs: tuple[int, ...]

    def terms(self) -> list[tuple[int, int, int, int]]:
        """The products of blades that are not zero, in the order of the metric: left, right, output and sign."""
        at, signs = self.sources, self.signs
        return [
            (at[left], at[right], at[output], sign * signs[at[left]] * signs[at[right]] * signs[at[output]])
            for left, right, output, sign in Algebra(*self.signature).terms()
        ]

    @property
    def is_ours(self) -> bool:
        """Whether the metric is in flashcliff's order, so that equal blades have equal places."""
        return self.vectors == tuple(range(len(self.vectors)))


@cache
def blades_of(count: int) -> tuple[tuple[int, ...], ...]:
    """The vectors of each blade, in the order of tensors: by grade, then by vectors."""
    grades = (itertools.combinations(range(count), grade) for grade in range(count + 1))
    return tuple(itertools.chain.from_iterable(grades))


@cache
def order_of(squares: tuple[float, ...]) -> Order:
    """The order of a metric of ones, minus ones and zeros. Vectors of equal squares keep their order."""
    count = len(squares)
    ranked = sorted(range(count), key=lambda vector: _OURS.index(squares[vector]))
    vectors = tuple(ranked.index(vector) for vector in range(count))
    blades = blades_of(count)
    index = {blade: at for at, blade in enumerate(blades)}
    moved = [[vectors[vector] for vector in blade] for blade in blades]
    places = tuple(index[tuple(sorted(blade))] for blade in moved)
    swaps = [sum(a > b for a, b in itertools.combinations(blade, 2)) for blade in moved]
    return Order(
        signature=(squares.count(1.0), squares.count(-1.0), squares.count(0.0)),
        vectors=vectors,
        places=places,
        sources=tuple(sorted(range(len(blades)), key=places.__getitem__)),
        signs=tuple(-1 if count % 2 else 1 for count in swaps),
    )
