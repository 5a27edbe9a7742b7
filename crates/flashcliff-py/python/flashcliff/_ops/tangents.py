"""Derivatives in forward mode, which there are none of: they would be zero without a word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd import forward_ad


def active() -> bool:
    """Whether anything can have a tangent."""
    return forward_ad._current_level >= 0


def refuse(operator: str, names: Iterable[str], values: Iterable[Any]) -> None:
    """Raises if one of the values has a tangent."""
    for name, value in zip(names, values):
        if isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise NotImplementedError(
                f"flashcliff: {operator} has no derivatives in forward mode, and `{name}` has a "
                "tangent"
            )
