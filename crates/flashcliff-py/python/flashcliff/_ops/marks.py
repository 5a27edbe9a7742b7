"""Marks for the compiler of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import torch

from .imports import when_imported

F = TypeVar("F", bound=Callable[..., Any])


def constant(function: F) -> F:
    """Marks a function whose result is a constant of a trace.

    ``torch.compiler.assume_constant_result`` sets the same mark, but imports the compiler, which every program would wait for.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def kept_constant(function: F) -> F:
    """Makes a function of hashable arguments a constant of a trace whose last 64 results are kept."""
    kept = lru_cache(maxsize=64)(lambda *arguments: static(function(*arguments)))

    # The compiler reads the mark of a function, and a cache is none.
    @wraps(function)
    def call(*arguments: Any) -> Any:
        return kept(*arguments)

    call.cache_clear = kept.cache_clear  # type: ignore[attr-defined]
    return cast(F, constant(call))


def static(made: Any) -> Any:
    """Marks the sizes of tensors as numbers of a trace, also with ``dynamic=True``: the compiler cannot guard a symbol for the size of a
    constant. ``torch._dynamo.mark_static`` sets the same marks, but imports the compiler."""
    for own in made if isinstance(made, tuple) else (made,):
        if isinstance(own, torch.Tensor):
            own._dynamo_static_indices = set(range(own.dim()))  # type: ignore[attr-defined]
            own._has_dynamo_dim_marking = True  # type: ignore[attr-defined]
    return made


def untraced(function: F) -> F:
    """Keeps the compiler out of a function and of what it calls. ``torch.compiler.disable`` does too, but imports the compiler."""
    run: Callable[..., Any] = function

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return run(*arguments)

    def disable(compiler: Any) -> None:
        nonlocal run
        run = torch.compiler.disable(function)
        compiler.eval_frame.skip_code(call.__code__)  # type: ignore[attr-defined]

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    when_imported("torch._dynamo", disable)
    return cast(F, call)
