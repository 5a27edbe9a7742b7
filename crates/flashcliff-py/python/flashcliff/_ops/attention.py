"""Calls the kernels of attention with tensors on CUDA.

Features are ``[*batch, heads, items, width]``. The last axis is contiguous, and all sequences are equally far apart in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from . import doors
from .run import launch
from .tensor_types import NAMES

__all__ = ["Call", "Rows", "backward", "empty_features", "forward", "serves"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Rows(NamedTuple):
    """The items of all sequences."""

    total: int
    longest: int
    """The most items of a sequence; without bounds the items of each."""
    bounds: Tensor | None = None
    """The boundaries of sequences on the device, ``[sequences + 1]`` of int32."""


class Call(NamedTuple):
    """The properties of attention beside its tensors."""

    scale: float
    """The factor of dot products."""
    sequences: int
    queries: Rows
    keys: Rows
    tf32: bool
    """Whether factors of float32 may be rounded to TF32."""


def serves(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there are kernels for features of these types and sizes."""
    if not _core.CUDA or not query.is_cuda or query.dtype not in _DTYPES:
        return False
    same = all(x.dtype == query.dtype and x.device == query.device for x in (key, value))
    heads, of_keys = query.shape[-3], {key.shape[-3], value.shape[-3]}
    step, most = _core.Attention.ALIGNED, _core.Attention.WIDTH
    widths = query.shape[-1], key.shape[-1], value.shape[-1]
    fits = all(0 < width <= most and width % step == 0 for width in widths)
    fits = fits and len(of_keys) == 1 and of_keys <= {1, heads}
    return same and fits


def _is_regular(x: Tensor) -> bool:
    """Whether the kernels can read features where they are."""
    sequence = _sequence_stride(x)
    step = _core.Attention.ALIGNED
    strides = (sequence, *x.stride()[-3:-1])
    start = x.data_ptr() % (step * x.element_size())
    return x.stride(-1) == 1 and start == 0 and all(n is not None and n % step == 0 for n in strides)


def _sequence_stride(x: Tensor) -> int | None:
    """The elements from a batch element to the next, or ``None`` if there is no such number."""
    if x.dim() == 4:
        return x.stride(0) if x.shape[0] != 1 else 0
    found = expected = None
    for size, stride in zip(reversed(x.shape[:-3]), reversed(x.stride()[:-3])):
        if size == 1:
            continue
        if expected not in (None, stride):
            return None
        found = stride if found is None else found
        expected = size * stride
    return found or 0


def _regular(x: Tensor) -> Tensor:
    """The same features where the kernels can read them."""
    if _is_regular(x):
        return x
    return empty_features(x, x.shape).copy_(x)


def empty_features(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Features ``[*batch, heads, items, width]`` whose heads lie side by side in each item."""
    *batch, heads, items, width = shape
    return like.new_empty(*batch, items, heads, width).movedim(-2, -3)


def forward(call: Call, given: tuple[Tensor, Tensor, Tensor], out: Tensor) -> Tensor:
    """Writes what queries attend to, of keys and values. Returns the logarithms of the sums of exponentials, ``[heads,
    queries]``."""
    query = given[0]
    log_sums = query.new_empty(query.shape[-3], call.queries.total, dtype=torch.float32)
    described = _described(call, (*map(_regular, given), out), log_sums)
    launch(query, lambda target: _kernels().forward(*described, target))
    return log_sums


def backward(
    call: Call,
    given: tuple[Tensor, Tensor, Tensor, Tensor],
    log_sums: Tensor,
    gradient: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Writes the gradients of queries, keys and values; ``given`` are these and what the queries attend to."""
    described = _described(call, tuple(map(_regular, given)), log_sums)
    gradient = _regular(gradient)
    means = torch.empty_like(log_sums)
    places = _place(gradient), [_place(x) for x in gradients], means.data_ptr()
    launch(gradient, lambda target: _kernels().backward(*described, places, target))


@functools.cache
def _kernels() -> _core.Attention:
    return _core.Attention()


def _described(call: Call, given: Sequence[Tensor], log_sums: Tensor) -> tuple[object, ...]:
    query, key, value, _ = given
    doors.check("attention", given, ("query", "key", "value"))
    heads = query.shape[-3], key.shape[-3]
    widths = query.shape[-1], value.shape[-1]
    kind = (*heads, *widths, call.scale, NAMES[query.dtype], call.tf32)
    rows = call.sequences, _rows(call.queries), _rows(call.keys)
    return kind, [_place(x) for x in given], log_sums.data_ptr(), rows


def _place(x: Tensor) -> tuple[int, int, int, int]:
    return x.data_ptr(), _sequence_stride(x) or 0, x.stride(-2), x.stride(-3)


def _rows(rows: Rows) -> tuple[int, int, int]:
    return rows.total, rows.longest, 0 if rows.bounds is None else rows.bounds.data_ptr()

