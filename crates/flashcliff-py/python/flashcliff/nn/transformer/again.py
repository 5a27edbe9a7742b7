"""Gradients of functions of autograd by the same functions, composed of operations of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Composed", "again"]

Composed = Callable[..., Any]
"""The function of these tensors, composed of operations that have derivatives of every order."""


def again(
    composed: Composed, given: Sequence[Tensor | None], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients of the given tensors, with their own derivatives if there may be any."""
    differentiated = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views end the way back: one tensor may have been computed from another, by nodes that the caller's graph still needs.
        given = [t.view_as(t) if t is not None and t.requires_grad else t for t in given]
        found = composed(*given)
    wanted = [t for t in given if t is not None and t.requires_grad]
    out = [found] if isinstance(found, Tensor) else list(found)
    pairs = [
        (x, g)
        for x, g in zip(out, gradients, strict=True)
        if x is not None and g is not None and x.requires_grad
    ]
    if not pairs or not wanted:
        return [None] * len(given)
    results = torch.autograd.grad(
        [x for x, _ in pairs],
        wanted,
        [g for _, g in pairs],
        create_graph=differentiated,
        allow_unused=True,
    )
    made = iter(results)
    return [next(made) if t is not None and t.requires_grad else None for t in given]
