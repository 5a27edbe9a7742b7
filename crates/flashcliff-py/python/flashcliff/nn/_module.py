"""The base of all modules: the algebra, and checks of constructor arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .._ops import checks
from .._ops.checks import count as check_count
from .._ops.remedies import check_tensor
from ..algebra import Algebra, AlgebraLike, as_algebra

__all__ = [
    "AlgebraLike",
    "CliffordModule",
    "Grades",
    "check_choice",
    "check_count",
    "check_features",
    "check_shape",
    "check_tensor",
    "joined",
]

Grades = Iterable[int]
"""The grades that an operand carries, for example ``(1,)`` for vectors."""


class CliffordModule(torch.nn.Module):
    """A module of one algebra. Multivectors are ``[blades, *batch, channels]``.

    Example:
        >>> from flashcliff import nn
        >>> class Squares(nn.CliffordModule):
        ...     def forward(self, x):
        ...         return (x * x).sum(0)
        >>> Squares((3, 0, 0)).algebra
        Algebra(3, 0, 0)
    """

    algebra: Algebra
    """The algebra as it was given, if it is a module, whose tables are part of the state dict."""
    _algebra: Algebra
    """The algebra that operators compute in."""

    def __init__(self, algebra: AlgebraLike) -> None:
        super().__init__()
        given: Any = algebra
        self._algebra = found = as_algebra(given)
        chosen: Any = given if isinstance(given, torch.nn.Module) else found
        self.algebra = chosen

    def reset_parameters(self) -> None:
        """Draws the module's own parameters anew; modules within it keep theirs."""


def check_features(name: str, value: Any) -> int:
    """A number of at least 1, for example of channels."""
    value = checks.integer(name, value)
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")
    return value


def check_shape(name: str, x: torch.Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises unless a tensor has a shape; one without channels is missing."""
    expected = shape if shape[-1] else None
    if x is not None:
        check_tensor(name, x)
    got = None if x is None else tuple(x.shape)
    if got != expected:
        wanted = None if expected is None else list(expected)
        raise ValueError(f"{name}: expected {wanted}, got {None if got is None else list(got)}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Checks that a name is one of some names, and returns it in its present spelling."""
    value = checks.choice(name, value)
    for choice in choices:
        if value == choice:
            return choice
    raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")


def joined(*parts: str) -> str:
    """The parts of an ``extra_repr`` that are not empty."""
    return ", ".join(part for part in parts if part)
