"""The mean of each sequence of a ragged batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .ragged import Sequences

__all__ = ["means_of_sequences"]


def means_of_sequences(x: Tensor, sequences: Sequences) -> Tensor:
    """For each item the mean over its sequence, of numbers ``[*batch, items]``. Summed in float32 at least.

    Sums have the same bits in every call, on CUDA too.
    """
    given = x, sequences.on(x.device), sequences.of_items(x.shape[-1], x.device)
    if x.requires_grad or torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        out: Tensor = _Means.apply(*given)
        return out
    # A call of the function would take as long as all else.
    return _means(*given)


def _means(x: Tensor, bounds: Tensor, of_item: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    flat = wide.reshape(x.shape[:-1].numel(), x.shape[-1])
    counts = bounds.diff().clamp_min(1).to(flat.dtype)
    means = _sums(flat, bounds, of_item) / counts
    return means.index_select(1, of_item).view(x.shape).to(x.dtype)


class _Means(torch.autograd.Function):
    """A symmetric linear function, so it is its own derivative and its own adjoint."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bounds: Tensor, of_item: Tensor) -> Tensor:
        return _means(x, bounds, of_item)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, bounds, of_item = inputs
        ctx.save_for_backward(bounds, of_item)
        ctx.save_for_forward(bounds, of_item)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Means.apply(gradient, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Any:
        return _Means.apply(tangent, *ctx.saved_tensors)


def _sums(x: Tensor, bounds: Tensor, of_item: Tensor) -> Tensor:
    """The sums ``[rows, sequences]`` of numbers ``[rows, items]``."""
    rows, items = x.shape
    sequences = len(bounds) - 1
    if not x.is_cuda or items == 0:
        return x.new_zeros(rows, sequences).index_add(1, of_item, x)
    # There index_add would add in the order in which threads come.
    if rows > 1:
        starts = torch.arange(rows, device=x.device)[:, None] * items + bounds[:-1]
        bounds = torch.cat((starts.flatten(), starts.new_full((1,), rows * items)))
    sums = torch.segment_reduce(x.reshape(-1), "sum", offsets=bounds, axis=0, unsafe=True)
    return sums.view(rows, sequences)
