"""Rows of the table of misuse: a call, and its expected outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import flashcliff

R3 = flashcliff.Algebra(3)


@dataclass(frozen=True)
class Row:
    what: str
    call: Callable[[], Any]
    error: type[BaseException] | None
    """The type of the exception, exactly; ``None`` if the result is right."""
    says: str | Callable[[Any], bool]
    """A regular expression for the message; or a function that says whether a result is right."""


def refused(what: str, call: Callable[[], Any], error: type[BaseException], says: str) -> Row:
    return Row(what, call, error, says)


def right(what: str, call: Callable[[], Any], check: Callable[[Any], bool]) -> Row:
    return Row(what, call, None, check)


def x(channels: int = 4, blades: int = 8, batch: int = 3, **options: Any) -> torch.Tensor:
    return torch.randn(blades, batch, channels, **options)


def w(channels: int = 4, paths: int = 20, **options: Any) -> torch.Tensor:
    return torch.randn(channels, paths, **options)
