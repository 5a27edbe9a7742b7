"""The precision of layers and networks under autocast."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

__all__ = ["in_float32", "is_naive", "lowers", "naive_amp"]

Method = TypeVar("Method", bound=Callable[..., Any])

_depth: contextvars.ContextVar[int] = contextvars.ContextVar("naive_amp", default=0)


class _Traced(threading.local):
    """The depth for traces of :func:`torch.compile`, which follow an attribute, but set no context variable."""

    depth = 0


_TRACED = _Traced()


class naive_amp:
    """A context in which layers that are called one by one run in autocast's type, not only what stays accurate there.

    A network that is one function computes in float32 under autocast (see :func:`flashcliff.nn.transformer.explain`). With this context it
    trains on a GPU with tokens of autocast's type between its steps, but for sums that pass the whole network. Outside of the context,
    layers of multivectors run in float32 under autocast, and so do the layers of L-GATr-slim except its linear maps of scalars. Like
    autocast it is for the thread or asynchronous task that enters it.

    Args:
        enabled: whether the context does anything. ``naive_amp(False)`` never switches off an outer one.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> naive_amp:
        self._add(int(self.enabled))
        return self

    def __exit__(self, *_: object) -> None:
        self._add(-int(self.enabled))

    def _add(self, count: int) -> None:
        _TRACED.depth += count
        if not torch.compiler.is_compiling():
            _depth.set(_depth.get() + count)


def is_naive() -> bool:
    """Whether the context is on."""
    return (_TRACED.depth if torch.compiler.is_compiling() else _depth.get()) > 0


def lowers(x: Tensor) -> bool:
    """Whether autocast is on where a tensor is. There is no autocast of tensors without data."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def in_float32(method: Method) -> Method:
    """A method that runs without autocast, on tensors of at least float32, unless :class:`naive_amp` is on."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        device = _device(args, kwargs)
        low_wanted = getattr(self, "naive_amp", False) or is_naive()
        # There is no autocast of tensors without data.
        if low_wanted or device == "meta" or not torch.is_autocast_enabled(device):
            return method(self, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            wide = {name: _widened(x) for name, x in kwargs.items()}
            return method(self, *map(_widened, args), **wide)

    return cast(Method, run)


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    for x in args:
        if isinstance(x, Tensor):
            return x.device.type
    for x in kwargs.values():
        if isinstance(x, Tensor):
            return x.device.type
    return "cpu"


def _widened(x: Any) -> Any:
    low = isinstance(x, Tensor) and x.is_floating_point() and x.dtype.itemsize < 4
    return x.float() if low else x
