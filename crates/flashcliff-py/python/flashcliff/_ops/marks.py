"""Marks for the compiler of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """Marks a function whose result is a constant of a trace.

    ``torch.compiler.assume_constant_result`` sets the same mark, but imports the compiler, which every program would wait for.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
