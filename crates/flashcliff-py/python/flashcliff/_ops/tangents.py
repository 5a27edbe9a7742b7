"""Refuses derivatives that operators do not have: those in forward mode, which would silently be
zero, and those by transforms of ``torch.func``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def active() -> bool:
    """Whether anything can have a tangent."""
    return forward_ad._current_level >= 0


def refuse(operator: str, names: Iterable[str], values: Iterable[Any]) -> None:
    """Raises if one of the values has a tangent."""
    for name, value in zip(names, values):
        if isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise NotImplementedError(
                f"flashcliff: {operator} has no derivatives in forward mode, and `{name}` has a "
                "tangent"
            )


def refuse_transforms(operator: str, names: Iterable[str], values: Iterable[Any]) -> None:
    """Raises if ``torch.func.grad`` or a relative of it follows one of the values."""
    for name, value in zip(names, values):
        if not isinstance(value, Tensor) or not value.requires_grad:
            continue
        if torch._C._functorch.is_gradtrackingtensor(value):
            raise NotImplementedError(
                f"flashcliff: {operator} has no gradients by transforms of torch.func, and "
                f"`{name}` is followed by one; use torch.autograd.grad or Tensor.backward"
            )
