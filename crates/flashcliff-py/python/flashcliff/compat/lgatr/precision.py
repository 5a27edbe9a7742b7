"""The precision of layers and networks under autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

__all__ = ["in_float32", "naive_amp"]

Method = TypeVar("Method", bound=Callable[..., Any])

_naive = 0


class naive_amp:
    """A context in which everything runs in autocast's type, not only what stays accurate there.

    Outside of it, layers and networks of multivectors run in float32 under autocast, and so does all of L-GATr-slim
    except its linear maps of scalars.

    Args:
        enabled: whether the context does anything. ``naive_amp(False)`` never switches off an outer one.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> naive_amp:
        global _naive
        _naive += self.enabled
        return self

    def __exit__(self, *_: object) -> None:
        global _naive
        _naive -= self.enabled


def in_float32(method: Method) -> Method:
    """A method that runs without autocast, on tensors of at least float32, unless :class:`naive_amp` is on."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
        device = next((x.device.type for x in tensors), "cpu")
        low_wanted = _naive or getattr(self, "naive_amp", False)
        # There is no autocast of tensors without data.
        if low_wanted or device == "meta" or not torch.is_autocast_enabled(device):
            return method(self, *args, **kwargs)
        with torch.autocast(device, enabled=False):
            wide = {name: _widened(x) for name, x in kwargs.items()}
            return method(self, *map(_widened, args), **wide)

    return cast(Method, run)


def _widened(x: Any) -> Any:
    low = isinstance(x, Tensor) and x.is_floating_point() and x.dtype.itemsize < 4
    return x.float() if low else x
