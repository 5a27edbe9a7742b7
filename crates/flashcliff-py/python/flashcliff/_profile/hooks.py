"""Puts a clock around every call into the extension while a profile is active.

The functions that reach the extension are replaced when the first profile starts and put back when the last one ends, so
nothing is asked on the way of a call without one. Traces of ``torch.compile`` are left alone: a profile makes nothing
compile again.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from .._capture.step import Captured
from .._ops import borrowed, library, run
from . import compiled, kernels
from .clock import TimedOperator, timed_replay

_Swap = tuple[Any, str, Any, Any]
_swaps: list[_Swap] = []


def install() -> None:
    """Replaces what reaches the extension; whoever calls this holds the lock."""
    if _swaps:
        raise AssertionError("the hooks of profiles are in place already")
    try:
        _swap(run, "forward", _forward(run.forward, by_keep=True))
        _swap(run, "backward", _backward(run.backward))
        dispatched = _forward(_swaps[0][2], by_keep=False)
        _swap(library, "run", types.SimpleNamespace(**{**vars(run), "forward": dispatched}))
        _swap(borrowed, "operator", _operator(borrowed.operator))
        for place, name, describe in kernels.places():
            _swap(place, name, kernels.clocked(vars(place)[name], describe))
        _swap(torch.cuda.CUDAGraph, "replay", timed_replay(torch.cuda.CUDAGraph.replay, _of_graph))
        _swap(Captured, "_replay", timed_replay(Captured._replay, _of_captured))
        compiled.install()
    except BaseException:
        remove()
        raise


def remove() -> None:
    """Puts back what was replaced; whoever calls this holds the lock."""
    compiled.remove()
    while _swaps:
        place, name, before, ours = _swaps.pop()
        # Whoever has replaced it since keeps what is there.
        if vars(place).get(name) is ours:
            setattr(place, name, before)


def _swap(place: Any, name: str, ours: Any) -> None:
    before = vars(place)[name]
    setattr(place, name, ours)
    _swaps.append((place, name, before, ours))


def _forward(inner: Callable[..., Any], by_keep: bool) -> Callable[..., Any]:
    """``run.forward`` with a clock. Only the eager path's ``keep`` says whether a graph of autograd keeps the inputs."""

    def forward(operator: Any, tensors: Any, keep: bool) -> Any:
        return inner(_timed(operator, keep, keep if by_keep else None), tensors, keep)

    return forward


def _backward(inner: Callable[..., Any]) -> Callable[..., Any]:
    def backward(operator: Any, *rest: Any) -> Any:
        return inner(_timed(operator, False, None), *rest)

    return backward


def _timed(operator: Any, saves: bool, held: bool | None) -> Any:
    # A call on another GPU than the current one comes here twice.
    if type(operator) is TimedOperator:
        return operator
    return TimedOperator(operator, saves, held)


def _operator(inner: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: TimedOperator(inner(*arguments), False, False)


def _of_graph(graph: Any) -> str:
    return "CUDA graph"


def _of_captured(step: Any) -> str:
    return f"CUDA graph of `{getattr(step, '__name__', 'step')}`"
