"""Which gradients a backward pass is asked for.

``ctx.needs_input_grad`` says which inputs have a gradient. Of these ``torch.autograd.grad`` may ask for some alone: forces are gradients of
positions, and the gradients of weights that belong to them would be computed for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def of(ctx: Any, needs: Sequence[bool]) -> Sequence[bool]:
    """Which gradients of some tensors the running backward pass asks for.

    Args:
        ctx: the context of the function.
        needs: whether each tensor has a gradient; all tensors of the call are among them.
    """
    if torch.compiler.is_compiling() or not any(needs):
        return needs
    edges = getattr(ctx, "next_functions", ())
    nodes = [node for node, _ in edges if node is not None]
    if len(nodes) != sum(needs):
        # A transform of torch.func, whose contexts are no nodes.
        return needs
    following = iter(nodes)
    return [need and _runs(next(following)) for need in needs]


def _runs(node: Any) -> bool:
    """Whether the engine goes on to a node."""
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:
        # A leaf that is asked for, or a call outside of a backward pass.
        return True
