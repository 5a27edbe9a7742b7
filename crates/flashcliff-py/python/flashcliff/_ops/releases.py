"""Differences between releases of PyTorch, from 2.6 on, for Python. `_native/versions.hpp` has the differences for C++."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import is_before

__all__ = ["TRACES_WHOLE", "gradients_of", "padded"]

TRACES_WHOLE: bool = hasattr(torch.library, "get_kernel")
"""Whether the compiler traces calls of operators whole. Before 2.9 it ends its traces there."""
_PADS_EMPTY = not is_before("2.10")


def gradients_of(definition: Any, overload: torch._ops.OpOverload, key: str) -> Callable[..., Any]:
    """The kernel for gradients that PyTorch registered for a custom operator."""
    if hasattr(torch.library, "get_kernel"):
        return torch.library.get_kernel(overload, key).call_boxed
    # Before 2.9 PyTorch cannot be asked for it, and makes it of the definition.
    return torch._library.autograd.make_autograd_impl(overload, definition)


def padded(x: Tensor, pads: Sequence[int]) -> Tensor:
    """``torch.nn.functional.pad`` with zeros. Before 2.10 it refuses tensors without elements if the empty axis is among the axes of
    ``pads``."""
    if _PADS_EMPTY or torch.compiler.is_compiling() or x.numel():
        return torch.nn.functional.pad(x, list(pads))
    sizes = list(x.shape)
    for at, (before, behind) in enumerate(zip(pads[::2], pads[1::2]), 1):
        sizes[-at] += before + behind
    # The sum, which is 0, has the graph of gradients.
    return x.new_zeros(sizes) + x.sum()
