"""Attention by a kernel of our own on CUDA, with its gradients: of float32, and of 16 bits within short sequences.

PyTorch's kernels are made for 16 bits and long sequences. They take longer for float32, between few items, and where heads
share keys and values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..._ops import attention as kernels
from ..._ops import doors
from ..._ops.attention import Call, Rows
from ..._ops.doors import opens_on_cuda
from ..._ops.run import takes_tf32
from .again import again
from .fused import composed_attention
from .ragged import Sequences, of_items

__all__ = ["attend_by_kernel", "serves", "spreads", "takes_longest"]

# The most items of a sequence for which the kernel is faster than PyTorch's, by the bytes of a feature. Of float32 it is always
# faster; it counts up to so many items.
_LONGEST = {4: 1 << 14, 2: 16}
# Heads that share fewer keys than this each have their own kernel, unless sequences are so short that a tile has all heads.
_FEW_KEYS = 1 << 15
_SHORT = 64
# The kernel counts the items of a sequence, times the items of all heads in one place, with 31 bits.
_MANY_ROWS = 1 << 31


def serves(
    query: Tensor, key: Tensor, value: Tensor, ragged: tuple[Sequences, Sequences] | None
) -> bool:
    """Whether there is a kernel for attention ``[*batch, heads, items, features]``, and it pays."""
    if not all(map(opens_on_cuda, (query, key, value))):
        return False
    if query.dtype == torch.float32 and torch.is_autocast_enabled("cuda"):
        # PyTorch would convert the features.
        return False
    if ragged is not None and query.shape[:-3].numel() != 1:
        return False
    of_queries, of_keys = _rows(query, key, ragged)
    longest = max(of_queries.longest, of_keys.longest)
    return takes_longest(query.dtype, longest) and kernels.serves(query, key, value)


def attend_by_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    ragged: tuple[Sequences, Sequences] | None,
) -> Tensor:
    """Attention ``[*batch, heads, items, features]``; one head of keys and values stands for all."""
    of_queries, of_keys = _rows(query, key, ragged)
    if ragged is None:
        sequences = query.shape[:-3].numel()
    else:
        sequences = of_queries.bounds.numel() - 1  # type: ignore[union-attr]
    heads = query.shape[-3]
    if key.shape[-3] == 1 and spreads(heads, sequences, of_queries, of_keys):
        # Gradients of the heads are summed after the kernel.
        key, value = (x.expand(*x.shape[:-3], heads, -1, -1) for x in (key, value))
    call = Call(scale, sequences, of_queries, of_keys, takes_tf32())
    out: Tensor = _Attention.apply(call, _composed(call), query, key, value)
    return out


def spreads(heads: int, sequences: int, queries: Rows, keys: Rows) -> bool:
    """Whether heads that share keys and values each have their own kernel."""
    # All heads in one place would leave a GPU idle, or be more rows than the kernel counts.
    is_few = keys.longest > _SHORT and sequences * keys.longest < _FEW_KEYS
    return is_few or heads * queries.longest**2 >= _MANY_ROWS


def takes_longest(dtype: torch.dtype, longest: int) -> bool:
    """Whether sequences of up to so many items are attended by the kernel, by the type of features."""
    return longest <= _LONGEST.get(dtype.itemsize, 0)


def _rows(
    query: Tensor, key: Tensor, ragged: tuple[Sequences, Sequences] | None
) -> tuple[Rows, Rows]:
    if ragged is None:
        return tuple(Rows(x.shape[:-3].numel() * x.shape[-2], x.shape[-2]) for x in (query, key))  # type: ignore[return-value]
    pairs = zip((query, key), ragged)
    return tuple(Rows(x.shape[-2], of.longest, of.on(x.device)) for x, of in pairs)  # type: ignore[return-value]


def _composed(call: Call) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The same function of operations that have derivatives of every order."""

    def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask, of_query, of_key = None, call.queries.bounds, call.keys.bounds
        if of_query is not None and of_key is not None:
            rows, columns = of_items(of_query, query.shape[-2]), of_items(of_key, key.shape[-2])
            mask = rows[:, None] == columns
        return composed_attention(query, key, value, mask, False, call.scale)

    return attended


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        composed: Callable[[Tensor, Tensor, Tensor], Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> Tensor:
        ctx.call, ctx.composed = call, composed
        out = kernels.empty_features(query, (*query.shape[:-1], value.shape[-1]))
        log_sums = kernels.forward(call, (query, key, value), out)
        ctx.save_for_backward(query, key, value, out, log_sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        query, key, value, out, log_sums = ctx.saved_tensors
        if torch.is_grad_enabled() or doors.composes(gradient):
            return None, None, *again(ctx.composed, (query, key, value), (gradient,))
        to_q, to_k, to_v = (kernels.empty_features(x, x.shape) for x in (query, key, value))
        read = query, key, value, out
        kernels.backward(ctx.call, read, log_sums, gradient, (to_q, to_k, to_v))
        return None, None, to_q, to_k, to_v
