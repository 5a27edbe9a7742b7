"""What is known of a module that may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

__all__ = ["Call", "Counterpart", "Draw", "NotReplaced"]

Call = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and named arguments of a call."""

Draw = Callable[..., Tensor]
"""Makes a random tensor of a shape."""


class NotReplaced(Exception):
    """A module has no counterpart here; the message says why."""


@dataclass(frozen=True)
class Counterpart:
    """How to make the counterpart of a module, and how to find out whether both do the same."""

    make: Callable[[], nn.Module]
    """Makes the counterpart."""
    fresh: Callable[[], nn.Module]
    """Makes a module of the package with the same configuration, as nobody has changed it."""
    calls: Callable[[Draw], list[Call]]
    """Calls on random input that both can make."""
    tolerance: float = 1e-9
    """The largest difference of both in float64, of the largest element of a result."""
    caches: frozenset[str] = frozenset()
    """Names of attributes in which modules of the package keep what they can compute again."""
