"""What all modules share: the algebra, and checks of constructor arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..algebra import Algebra, as_algebra

AlgebraLike = Algebra | tuple[int, ...]
"""An algebra, or its signature ``(p, q, r)``."""

Grades = Iterable[int]
"""The grades that an operand carries, say ``(1,)`` for vectors."""


class CliffordModule(torch.nn.Module):
    """A module of one algebra. Multivectors are ``[blades, *batch, channels]``."""

    algebra: Algebra

    def __init__(self, algebra: AlgebraLike) -> None:
        super().__init__()
        self.algebra = as_algebra(algebra)

    def reset_parameters(self) -> None:
        """Draws the module's own parameters anew; modules within it keep theirs."""


def check_features(name: str, value: Any) -> int:
    """A number, of channels say, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")
    return int(value)


def check_block_bytes(value: Any) -> int | None:
    """What a block of rows may take on CUDA; ``None`` leaves it to the library."""
    return None if value is None else check_features("block_bytes", value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of some names."""
    for choice in choices:
        if value == choice:
            return choice
    raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")


def check_grades(algebra: Algebra, name: str, grades: Grades | None) -> tuple[int, ...] | None:
    """Grades that the algebra has, in ascending order; ``None`` stands for all."""
    if grades is None:
        return None
    found = tuple(sorted(set(grades)))
    largest = algebra.dim
    if not found or found[0] < 0 or found[-1] > largest:
        raise ValueError(f"{name}: expected grades from 0 to {largest}, got {found}")
    return found


def joined(*parts: str) -> str:
    """The parts of an ``extra_repr`` that are not empty."""
    return ", ".join(part for part in parts if part)
