"""PyTorch's fused attention, with derivatives of every order on the CPU.

The gradient of PyTorch's kernel of the CPU has no derivative. Here a graph of gradients, which ``create_graph=True`` asks for, is
that of dot products and a softmax; all else is PyTorch's kernel and its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from ..._ops import doors
from .again import again

__all__ = ["composed_attention", "fused_attention"]

_FLASH = 1
"""The number by which PyTorch knows the choice of the kernel."""


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Scaled dot-product attention ``[*batch, heads, items, features]``."""
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    if transformed or doors.is_known_zero(query, key, value):
        # Fused kernels have derivatives neither in forward mode nor under transforms of gradients. They get what is known to be zero as
        # one number with strides of 0, and read past it: in PyTorch 2.6 the results are other memory.
        return composed_attention(query, key, value, mask, is_causal, scale)
    if _is_differentiated(query, key, value) and not doors.closed():
        if query.dim() == 3:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            mask = mask.unsqueeze(0) if mask is not None and mask.dim() == 3 else mask
            return fused_attention(
                query, key, value, scale=scale, mask=mask, is_causal=is_causal
            ).squeeze(0)
        chosen = torch._fused_sdp_choice(query, key, value, mask, 0.0, is_causal, scale=scale)
        if chosen == _FLASH and (mask is None or not mask.requires_grad):
            out: Tensor = _Fused.apply(mask, is_causal, scale, query, key, value)
            return out
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=is_causal, scale=scale
    )


def _is_differentiated(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether autograd follows tensors on the CPU."""
    if not query.is_cpu or query.dim() > 4 or not torch.is_grad_enabled():
        # PyTorch composes what has more axes.
        return False
    return query.requires_grad or key.requires_grad or value.requires_grad


def composed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """The same function of operations that have derivatives of every order; zeros for queries that may attend to nothing."""
    scores = query @ key.transpose(-1, -2) * scale
    if is_causal:
        earlier = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~earlier, -torch.inf)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        else:
            scores = scores + mask
    return _softmax(scores, mask) @ value


def _softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax, of which rows without any key are zero."""
    if mask is None:
        return scores.softmax(-1)
    nobody = (scores == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(nobody, 0.0).softmax(-1).masked_fill(nobody, 0.0)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mask: Tensor | None,
        is_causal: bool,
        scale: float,
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> Tensor:
        ctx.is_causal, ctx.scale = is_causal, scale
        added = mask
        if mask is not None and mask.dtype == torch.bool:
            # As PyTorch does it before its kernel.
            added = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, is_causal, attn_mask=added, scale=scale
        )
        ctx.save_for_backward(mask, added, query, key, value, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        mask, added, query, key, value, out, sums = ctx.saved_tensors
        given = query, key, value
        if torch.is_grad_enabled() or doors.composes(gradient):

            def composed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                return composed_attention(query, key, value, mask, ctx.is_causal, ctx.scale)

            return None, None, None, *again(composed, given, (gradient,))
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *given, out, sums, 0.0, ctx.is_causal, attn_mask=added, scale=ctx.scale
        )
        return None, None, None, *found
