"""The compiled layers for tensors on the CPU."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ... import _core
from ...algebra import Algebra


def is_native(x: Tensor) -> bool:
    """Whether the compiled layers take a tensor: float32 or float64 on the CPU, with memory of its own, outside of
    ``torch.compile``."""
    if not x.is_cpu or x.dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling():
        return False
    # Tensors without memory of their own: fake ones, and those batched by a transform.
    return type(x) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(x)


# Modules are copied and pickled, so these are not part of them.


@functools.cache
def linear(algebra: Algebra, group: str, unit: bool) -> _core.EquivariantLinear:
    """The compiled linear layer."""
    return _core.EquivariantLinear(algebra._core, group, unit)


@functools.cache
def norm(algebra: Algebra) -> _core.InvariantNorm:
    """The compiled norm."""
    return _core.InvariantNorm(algebra._core)
