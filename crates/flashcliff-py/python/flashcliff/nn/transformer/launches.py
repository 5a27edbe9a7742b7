"""Attention by PyTorch's kernels, which on CUDA take neither every address nor every number of heads.

They read rows by 16 bytes, and count sequences and heads by axes of a grid that end at 65,535. Here tensors at other
addresses are copied, gradients too, and larger counts are several launches. A query without keys gets zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._ops.doors import opens_on_cuda
from .fused import fused_attention

if TYPE_CHECKING:
    from .ragged import Sequences

__all__ = ["attention", "within"]

_BYTES = 16
_MOST = 65535
"""The most sequences, batch elements or heads of a launch."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float,
) -> Tensor:
    """Scaled dot-product attention ``[*batch, heads, items, features]``; one head of keys and values stands for all."""
    out = _attention(query, key, value, mask, is_causal, scale)
    if mask is None or not query.is_cuda or query.dtype.itemsize != 2:
        return out
    # Kernels of 16 bits give other rows than zeros to queries that may attend to nothing.
    some = mask if mask.dtype == torch.bool else mask != -torch.inf
    return out.masked_fill(~some.any(-1, keepdim=True), 0.0)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    heads = query.shape[-3]
    if opens_on_cuda(query):
        query, key, value = map(_aligned, (query, key, value))
        mask = mask if mask is None or _begins_well(mask) else _copied(mask)
    if not key.shape[-3] == value.shape[-3] == heads:
        key, value = (x.expand(*x.shape[:-3], heads, -1, -1) for x in (key, value))
    attend = functools.partial(fused_attention, is_causal=is_causal, scale=scale)
    if not opens_on_cuda(query):
        return attend(query, key, value, mask=mask)
    # Features with one axis before items, or with more than two, are attended by matrix products, which have no such bounds.
    if query.dim() != 4 or max(query.shape[:2]) <= _MOST:
        return _with_aligned_gradient(attend(query, key, value, mask=mask))
    if mask is not None:
        mask = mask.expand(*query.shape[:2], *mask.shape[-2:])

    def launched(at: tuple[slice, slice]) -> Tensor:
        own = None if mask is None else mask[at]
        return _with_aligned_gradient(attend(query[at], key[at], value[at], mask=own))

    return torch.cat([torch.cat([launched(at) for at in row], 1) for row in _parts(query.shape[:2])])


def _parts(sizes: Sequence[int]) -> list[list[tuple[slice, slice]]]:
    """The parts of two axes: for each part of the first, a list of its pairs with the parts of the second."""
    first, second = ([slice(at, at + _MOST) for at in range(0, max(n, 1), _MOST)] for n in sizes)
    return [[(a, b) for b in second] for a in first]


def within(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_query: Sequences,
    of_key: Sequences,
    scale: float,
    is_causal: bool,
) -> Tensor:
    """Attention ``[heads, items, features]`` within sequences, by a kernel."""
    # Causal masks of the faster kernel end at the last item of both, where there are fewer queries than keys.
    itself = of_query is of_key
    call = _Kernel(of_query, of_key, scale, is_causal, is_causal and not itself)
    if opens_on_cuda(query):
        query, key, value = map(_aligned, (query, key, value))
    heads, sequences = query.shape[0], len(of_query.bounds) - 1
    whole = (itself or not of_key.may_be_empty) and sequences <= _MOST

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if whole:
            return _with_aligned_gradient(call.of(q, k, v, slice(0, sequences)))
        return _by_launch(call, q, k, v, sequences)

    if heads <= _MOST:
        return attend(query, key, value)
    return torch.cat([attend(*x) for x in zip(*(x.split(_MOST) for x in (query, key, value)), strict=True)])


def _by_launch(call: _Kernel, query: Tensor, key: Tensor, value: Tensor, sequences: int) -> Tensor:
    """Attention of a launch after another, each of some sequences.

    Kernels leave the rows of other sequences as they are, in results and in gradients, and rows without keys are not
    numbers there; all these are zeros here.
    """
    of_rows = call.of_query.of_items(query.shape[-2], query.device)
    of_columns = call.of_key.of_items(key.shape[-2], key.device)
    has_keys = (call.of_key.on(query.device).diff() > 0).index_select(0, of_rows)
    total = zero = query.new_zeros(())
    for start in range(0, sequences, _MOST):
        stop = min(start + _MOST, sequences)
        rows, columns = (((of >= start) & (of < stop))[:, None] for of in (of_rows, of_columns))
        rows = rows & has_keys[:, None]
        q, k, v = query.where(rows, zero), key.where(columns, zero), value.where(columns, zero)
        found = _with_aligned_gradient(call.of(q, k, v, slice(start, stop)))
        total = found.where(rows, total)
    return total


class _Kernel:
    """A call of a kernel for ragged batches."""

    def __init__(
        self, of_query: Sequences, of_key: Sequences, scale: float, is_causal: bool, from_first: bool
    ) -> None:
        self.of_query, self.of_key = of_query, of_key
        self.scale = scale
        self.is_causal = is_causal
        self.from_first = from_first
        """Whether a causal mask begins at the first items of queries and of keys that are not the same."""

    def of(self, query: Tensor, key: Tensor, value: Tensor, sequences: slice) -> Tensor:
        """Attention ``[heads, items, features]`` within some of the sequences; other rows are arbitrary."""
        queries, keys = (
            of.on(query.device)[sequences.start : sequences.stop + 1]
            for of in (self.of_query, self.of_key)
        )
        width, width_v = query.shape[-1], value.shape[-1]
        fits = width == width_v <= 256 and width % 8 == 0 and not self.from_first
        if query.dtype.itemsize == 2 and fits and _has_flash(query.get_device()):
            out: Tensor = torch.ops.aten._flash_attention_forward(
                *(x.transpose(0, 1) for x in (query, key, value)),
                queries,
                keys,
                self.of_query.longest,
                self.of_key.longest,
                0.0,
                self.is_causal,
                False,
                scale=self.scale,
            )[0]
            return out.transpose(0, 1)
        differentiated = query.requires_grad or key.requires_grad or value.requires_grad
        out = torch.ops.aten._efficient_attention_forward(
            *(x.transpose(0, 1).unsqueeze(0) for x in (query, key, value)),
            None,
            queries,
            keys,
            self.of_query.longest,
            self.of_key.longest,
            0.0,
            # Masks by number: none, causal from the first item.
            int(self.is_causal),
            torch.is_grad_enabled() and differentiated,
            scale=self.scale,
        )[0]
        return out.squeeze(0).transpose(0, 1)


@functools.cache
def _has_flash(device: int) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _begins_well(x: Tensor) -> bool:
    return x.data_ptr() % _BYTES == 0


def _aligned(x: Tensor) -> Tensor:
    """The same features, whose rows begin at multiples of 16 bytes."""
    size = x.element_size()
    rows = zip(x.shape[:-1], x.stride()[:-1])
    if _begins_well(x) and all(n == 1 or stride * size % _BYTES == 0 for n, stride in rows):
        return x
    return _copied(x)


def _copied(x: Tensor) -> Tensor:
    """A copy in separate memory. Axes along which elements repeat still repeat them."""
    once = [slice(0, 1) if stride == 0 and n > 1 else slice(None) for n, stride in zip(x.shape, x.stride())]
    return x[tuple(once)].clone(memory_format=torch.contiguous_format).expand(x.shape)


def _with_aligned_gradient(out: Tensor) -> Tensor:
    """The result of a kernel whose gradient comes back aligned."""
    if out.requires_grad and opens_on_cuda(out):
        out.register_hook(lambda gradient: _aligned(gradient) if opens_on_cuda(gradient) else gradient)
    return out
