"""Marks for the compiler of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """Marks a function whose result is a constant of a trace.

    ``torch.compiler.assume_constant_result`` sets the same mark, but imports the compiler, which every program would wait for.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def kept_constant(function: F) -> F:
    """Makes a function of hashable arguments a constant of a trace whose last 64 results are kept."""
    kept = lru_cache(maxsize=64)(function)

    # The compiler reads the mark of a function, and a cache is none.
    @wraps(function)
    def call(*arguments: Any) -> Any:
        return kept(*arguments)

    call.cache_clear = kept.cache_clear  # type: ignore[attr-defined]
    return cast(F, constant(call))
