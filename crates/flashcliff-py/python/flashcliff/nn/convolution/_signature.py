"""The signature ``g`` of a layer, and the products of its blades."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..._ops import checks
from ..._order import order_of
from ...algebra import Algebra

LARGEST_DIM = 8
"""The most vectors of an algebra."""

SignatureLike = Sequence[float] | Tensor | Algebra
"""The squares of the vectors in order, or an algebra, whose vectors are null first, then positive, then negative."""


def squares_of(name: str, g: Any) -> tuple[int, ...]:
    """The square of each vector, 1, -1 or 0."""
    if isinstance(g, Algebra):
        p, q, r = g.signature
        return (0,) * r + (1,) * p + (-1,) * q
    if isinstance(g, Tensor):
        if g.dim() != 1:
            raise ValueError(f"{name}: expected one axis, got {list(g.shape)}")
        g = g.tolist()
    if not isinstance(g, (tuple, list)):
        raise TypeError(
            f"{name}: expected a tuple, a list or a tensor of squares of vectors, such as (1, 1), got {g!r}"
        )
    found = [checks.number(name, square) for square in g]
    if not 1 <= len(found) <= LARGEST_DIM or any(
        square not in (1.0, -1.0, 0.0) for square in found
    ):
        raise ValueError(
            f"{name}: expected 1 to {LARGEST_DIM} squares of vectors, each 1, -1 or 0, got {g!r}"
        )
    return tuple(int(square) for square in found)


@lru_cache(maxsize=64)
def products_of(squares: tuple[int, ...]) -> dict[tuple[int, int], tuple[int, int]]:
    """The products of blades that are not zero: ``(left, right)`` to ``(output, sign)``."""
    terms = order_of(tuple(map(float, squares))).terms()
    return {(left, right): (output, sign) for left, right, output, sign in terms}


def blade_indices(name: str, squares: tuple[int, ...], blades: Any) -> tuple[int, ...]:
    """Indices of blades, each once, in the order of a tensor; all blades for ``None``."""
    count = 1 << len(squares)
    if blades is None:
        return tuple(range(count))
    if not isinstance(blades, (tuple, list, range)):
        raise TypeError(f"{name}: expected a tuple of indices of blades, got {blades!r}")
    found = tuple(checks.integer(name, blade) for blade in blades)
    if not found or len(set(found)) != len(found) or min(found) < 0 or max(found) >= count:
        raise ValueError(
            f"{name}: expected indices of blades from 0 to {count - 1}, each once, got {found}"
        )
    return found


class OfSignature(torch.nn.Module):
    """A module whose state dict has the signature as the buffer ``g``.

    Tables are made of the constructor's signature, so a state dict with another one is an error.
    """

    squares: tuple[int, ...]

    def _keep(self, g: Any, device: torch.device | str | None) -> None:
        """Keeps the signature, also as the buffer ``g``."""
        self.squares = squares_of("g", g)
        self.register_buffer("g", torch.tensor(self.squares, dtype=torch.float32, device=device))

    @property
    def dim(self) -> int:
        """The number of vectors."""
        return len(self.squares)

    @property
    def n_blades(self) -> int:
        """The number of blades, ``2 ** dim``."""
        return 1 << len(self.squares)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        given = state_dict.get(prefix + "g")
        if isinstance(given, Tensor) and not given.is_meta and not isinstance(given, FakeTensor):
            squares = tuple(given.tolist()) if given.dim() == 1 else None
            if squares != self.squares:
                errors: list[str] = args[-1]
                errors.append(
                    f"{prefix}g: expected the signature {self.squares}, got {given.tolist()}; make the layer with the signature of "
                    "the state dict"
                )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
