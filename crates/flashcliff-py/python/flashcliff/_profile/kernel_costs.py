"""Bytes and floating-point operations of the kernels of transformers, by the rules of :mod:`.costs`.

A norm of multivectors takes three operations for each number forward and seven backward, one of scalars 5 and 11, a gain one and three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .events import Kernel, Key

SIZES = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}
"""The bytes of a number."""


class Work(NamedTuple):
    """The work of one call."""

    bytes: int
    flops: int
    saved_bytes: int = 0


def work(key: Key, kernel: Kernel) -> Work:
    """The work of a call."""
    return _COSTS[kernel.name](key, kernel, dict(kernel.details))


def _of_norm(multivectors: int, scalars: int, is_backward: bool) -> int:
    """The operations of a norm without gains, of so many numbers."""
    return multivectors * (7 if is_backward else 3) + scalars * (11 if is_backward else 5)


def _norm(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    multivectors, scalars = _numbers(kernel, key.shapes[0])
    numbers = multivectors + scalars
    gains, residual = details.get("gains", 0), details.get("residual", False)
    is_backward = key.phase == "backward"
    # Input and output, and backward the gradient. A residual is read and its sum written; backward a gradient is added.
    tensors = 2 + (1 + residual if is_backward else 2 * residual)
    flops = _of_norm(multivectors, scalars, is_backward)
    flops += numbers * ((3 if is_backward else 1) * bool(gains) + residual)
    return Work(SIZES[key.dtype] * (tensors * numbers + gains * (1 + is_backward)), flops)


def _gate(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    multivectors, scalars = _numbers(kernel, key.shapes[0])
    lanes = multivectors // kernel.blades
    numbers = multivectors + scalars
    if key.phase == "forward":
        return Work(SIZES[key.dtype] * 2 * numbers, multivectors + lanes + scalars)
    # The gate and its derivative; a scaling, and the sum of products that the scalar blade gets.
    flops = 3 * multivectors + 2 * lanes + 2 * scalars
    return Work(SIZES[key.dtype] * 3 * numbers, flops)


def _heads(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    is_backward = key.phase == "backward"
    moved = flops = 0
    roles = details.get("distances", ())
    normed = details.get("norm", False)
    for place, (sizes, features) in enumerate(zip(key.shapes[::2], key.shapes[1::2])):
        role = roles[place] if roles else ""
        multivectors, scalars = _numbers(kernel, sizes)
        numbers = multivectors + scalars
        # Without norm and distances features are linear, so that a gradient needs no items.
        reads = 1 + is_backward if normed or role else 1
        moved += SIZES[key.dtype] * reads * numbers
        moved += SIZES[details["features"]] * math.prod(features)
        if normed:
            flops += _of_norm(multivectors, scalars, is_backward)
        if role:
            lanes = multivectors // kernel.blades
            # A factor, the scaled coordinates, their square, and the features.
            forward = 4 + 4 * details["points"]
            flops += lanes * forward * (3 if is_backward else 1)
            if is_backward and role == "query" and details.get("weights"):
                moved += SIZES[key.dtype] * lanes
    return Work(moved, flops)


def _merge(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    numbers = sum(_numbers(kernel, key.shapes[0]))
    return Work((SIZES[key.dtype] + SIZES[details["features"]]) * numbers, 0)


def _combine(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    multivectors, scalars = _numbers(kernel, key.shapes[0])
    rows, terms = key.shapes[0][0], details.get("terms", 0)
    factors = rows * kernel.blades if details.get("factors") else 0
    numbers = multivectors + scalars
    flops = max(terms - 1, 0) * numbers + (multivectors if factors else 0)
    return Work(SIZES[key.dtype] * ((terms + 1) * numbers + factors), flops)


def _column_sums(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    rows, taken = key.shapes[0][0], details.get("columns", 0)
    return Work(SIZES[key.dtype] * (rows + 1) * taken, rows * taken)


def _pack(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    uses, count = key.shapes[1]
    width = SIZES[key.dtype]
    # Places are of 32 bits.
    read = width * math.prod(key.shapes[0]) + (4 + width) * uses * count
    return Work(read + width * count, 2 * uses * count)


def _attention(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    (*batch, heads, queries, width), of_key, of_value = key.shapes
    outer = math.prod(batch)
    total, keys = outer * queries, outer * of_key[-2]
    values = of_value[-1]
    # Ragged sequences count as if all were of one length: how long each is, the GPU knows.
    pairs = heads * (total * keys // details["sequences"])
    size = SIZES[key.dtype]
    inputs = size * sum(math.prod(shape) for shape in key.shapes)
    output = size * heads * total * values
    log_sums = 4 * heads * total
    if key.phase == "forward":
        # A dot product, a factor, an exponential, a sum; a sum of values.
        return Work(inputs + output + log_sums, pairs * (2 * (width + values) + 3), log_sums)
    # Scores again; the gradients of weights, values, queries and keys.
    flops = pairs * (2 * (3 * width + 2 * values) + 6)
    return Work(2 * inputs + 2 * output + log_sums, flops)


def _block_sparse(key: Key, kernel: Kernel, details: dict[str, Any]) -> Work:
    (rows, _), (inputs, outputs) = key.shapes
    entries = details.get("entries", 0)
    bias = outputs if details.get("bias") else 0
    numbers = rows * (inputs + outputs) + entries + bias
    sums = rows * bias if key.wanted == (False, True) else 0
    return Work(SIZES[key.dtype] * numbers, 2 * rows * entries + sums)


_COSTS: dict[str, Callable[[Key, Kernel, dict[str, Any]], Work]] = {
    "item_norm": _norm,
    "item_gate": _gate,
    "item_heads": _heads,
    "item_merge": _merge,
    "item_combine": _combine,
    "column_sums": _column_sums,
    "pack": _pack,
    "attention": _attention,
    "block_sparse_linear": _block_sparse,
}


def _numbers(kernel: Kernel, sizes: tuple[int, ...]) -> tuple[int, int]:
    """The numbers of multivectors, and of scalars."""
    rows, channels, scalars = sizes
    return rows * kernel.blades * channels, rows * scalars
