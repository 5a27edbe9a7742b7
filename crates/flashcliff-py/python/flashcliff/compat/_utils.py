"""Helpers of the packages gatr and lgatr that models of others import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["cached_einsum", "custom_einsum", "floor_of_precision", "minimum_autocast_precision"]

Function = TypeVar("Function", bound=Callable[..., Any])
Output = torch.dtype | str | None


def floor_of_precision(
    minimum: torch.dtype,
    output: Output,
    is_off: Callable[[], bool] = lambda: False,
    args_taken: Iterable[int] | None = None,
    kwargs_taken: Iterable[str] | None = None,
) -> Callable[[Function], Function]:
    """A decorator of functions that run without autocast, on tensors of at least a type, while autocast is on.

    Args:
        minimum: the type.
        output: the type of results of floating point: a type; ``"low"`` for the narrowest of the arguments' and the
            minimum; ``"high"`` for the widest of the arguments'; or ``None`` for what comes.
        is_off: whether the function runs as it is all the same.
        args_taken: indices of the arguments that are widened; all by default.
        kwargs_taken: names of those.
    """
    if not (output is None or output in ("low", "high") or isinstance(output, torch.dtype)):
        raise ValueError(f'output: expected None, "low", "high" or a torch.dtype, got {output!r}')
    indices = None if args_taken is None else frozenset(args_taken)
    names = None if kwargs_taken is None else frozenset(kwargs_taken)

    def widened(x: Any) -> Any:
        narrow = _floats(x) and torch.finfo(x.dtype).bits < torch.finfo(minimum).bits
        return x.to(minimum) if narrow else x

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if is_off() or not _autocast_is_on():
                return function(*args, **kwargs)
            wide = [
                widened(x) if indices is None or at in indices else x for at, x in enumerate(args)
            ]
            wide_kwargs = {
                name: widened(x) if names is None or name in names else x
                for name, x in kwargs.items()
            }
            with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
                found = function(*wide, **wide_kwargs)
            given = [x.dtype for x in (*args, *kwargs.values()) if _floats(x)]
            dtype = _output_type(output, minimum, given)
            if dtype is None:
                return found
            if isinstance(found, tuple):
                return tuple(x.to(dtype) if _floats(x) else x for x in found)
            return found.to(dtype) if _floats(found) else found

        return run  # type: ignore[return-value]

    return decorate


def minimum_autocast_precision(
    min_dtype: torch.dtype = torch.float32,
    output: torch.dtype | str | None = None,
    which_args: Iterable[int] | None = None,
    which_kwargs: Iterable[str] | None = None,
) -> Callable[..., Any]:
    """A decorator of functions that run without autocast, on tensors of at least ``min_dtype``, while autocast is on.

    Args:
        min_dtype: the type.
        output: the type of results: a type; ``"low"`` for the narrowest of the arguments' and ``min_dtype``; ``"high"``
            for the widest of the arguments'; ``None`` for what comes.
        which_args: indices of the arguments that are widened; all by default.
        which_kwargs: names of those. Arguments that are not widened are passed on; GATr and lgatr 1.4 lose them.
    """
    return floor_of_precision(
        min_dtype, output, args_taken=which_args, kwargs_taken=which_kwargs
    )


def _floats(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _autocast_is_on() -> bool:
    return torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")


def _output_type(
    output: Output, minimum: torch.dtype, given: list[torch.dtype]
) -> torch.dtype | None:
    if isinstance(output, torch.dtype):
        return output
    if output is None or not given:
        return None
    found, *others = [minimum, *given] if output == "low" else given
    # A loop, since functions as keys break graphs of torch.compile.
    for dtype in others:
        bits, least = torch.finfo(dtype).bits, torch.finfo(found).bits
        if (bits < least) if output == "low" else (bits > least):
            found = dtype
    return found


def cached_einsum(equation: str, *operands: Tensor) -> Tensor:
    """:func:`torch.einsum`, which chooses the order of contractions."""
    return torch.einsum(equation, *operands)


def custom_einsum(equation: str, *operands: Tensor, path: list[int]) -> Tensor:
    """:func:`torch.einsum`. The path is a choice of speed, and has no effect."""
    return torch.einsum(equation, *operands)
