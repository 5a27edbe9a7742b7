"""Bytes and floating-point operations of kernels of transformers, by the rules of :mod:`.costs`."""

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
    return _COSTS[kernel.name](key, dict(kernel.details))


def _network(key: Key, details: dict[str, Any]) -> Work:
    inputs = sum(math.prod(shape) for shape in key.shapes)
    numbers = inputs + details.get("parameters", 0) + details["result"]
    kept = details.get("kept", 0)
    if key.phase == "backward":
        # The result and its gradient are read, and all gradients written.
        numbers += details["result"] + details["gradients"]
    flops = details.get("flops", 0)
    return Work(SIZES[key.dtype] * numbers + kept, flops, kept if key.phase == "forward" else 0)


def _attention(key: Key, details: dict[str, Any]) -> Work:
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


_COSTS: dict[str, Callable[[Key, dict[str, Any]], Work]] = {
    "network": _network,
    "attention": _attention,
}
