"""The functions that emitted kernels call: masks, gates, and the sum of parts.

Gates have the formulas of the CUDA kernels (``flashcliff-sys/cuda/skeleton/gates.cuh``); tests compare both with the kernels of CPUs.
"""

from __future__ import annotations

import triton
import triton.language as tl

_TANH_SCALE = tl.constexpr(0.7978845608028654)
_TANH_CUBIC = tl.constexpr(0.044715)
_FAST_SCALE = tl.constexpr(1.702)


@triton.jit
def rows_within(row, rows, ROWS: tl.constexpr):
    """Whether rows of a tile are there. A tile of one row always has it."""
    if ROWS == 1:
        within = tl.full([1, 1], 1, tl.int1)
    else:
        within = row < rows
    return within


@triton.jit
def within(c, row, rows, COUNT: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Whether lanes of a tile are there. A mask that is constant costs nothing."""
    if COUNT == BLOCK and ROWS == 1:
        mask = tl.full([1, BLOCK], 1, tl.int1)
    else:
        mask = (row < rows) & (c < COUNT)
    return mask


@triton.jit
def offset(place, WIDE: tl.constexpr):
    """A place within a tensor. Where tensors are small enough, 32 bits save registers."""
    if WIDE:
        place = place.to(tl.int64)
    return place


@triton.jit
def damp(a, b):
    """``a b``, and 0 where ``a`` is 0: a closed gate lets nothing through."""
    return tl.where(a == 0.0, 0.0, a * b)


@triton.jit
def hypotenuse(a, b):
    """``sqrt(a^2 + b^2)`` without squares that overflow."""
    large = tl.maximum(tl.abs(a), tl.abs(b))
    small = tl.minimum(tl.abs(a), tl.abs(b))
    ratio = tl.where(small == large, 1.0, small / large)
    return tl.where(large == 0.0, 0.0, large * tl.sqrt(1.0 + ratio * ratio))


@triton.jit
def larger(a, b):
    """The larger of both, NaN if one of them is."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def greater(a, b):
    return (a > b).to(tl.float32)


@triton.jit
def square_root(x):
    return tl.sqrt(x)


@triton.jit
def sine(x):
    return tl.sin(x)


@triton.jit
def cosine(x):
    return tl.cos(x)


@triton.jit
def exponential(x):
    return tl.exp(x)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def sigmoid_slope(x):
    """From the tail, since ``1 - s`` has no bits left where ``s`` is close to 1."""
    tail = sigmoid(-tl.abs(x))
    return tail * (1.0 - tail)


@triton.jit
def _bell(x):
    return tl.exp2(x * x * -0.7213475204444817)


@triton.jit
def gate_gelu(x):
    """The normal distribution. Its tail is ``exp(-x^2 / 2) t q(t)`` with ``t = 1 / (1 + 0.43 |x|)``."""
    t = 1.0 / (0.43 * tl.abs(x) + 1.0)
    q = 0.04441949110786108
    q = q * t - 0.21195847299617446
    q = q * t + 0.3809430814705691
    q = q * t - 0.27125082350655827
    q = q * t + 0.011236638577424232
    q = q * t - 0.013949575797782391
    q = q * t + 0.07771126925960041
    q = q * t + 0.13975651361392247
    q = q * t + 0.17154675504882808
    q = q * t + 0.1715451732409254
    tail = q * t * _bell(x)
    return tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def slope_gelu(x):
    return 0.3989422804014327 * _bell(x)


@triton.jit
def _tanh_argument(x):
    return x * (x * x * _TANH_CUBIC + 1.0) * (2.0 * _TANH_SCALE)


@triton.jit
def gate_gelu_tanh(x):
    return sigmoid(_tanh_argument(x))


@triton.jit
def slope_gelu_tanh(x):
    inner = (x * x * (3.0 * _TANH_CUBIC) + 1.0) * (2.0 * _TANH_SCALE)
    return damp(sigmoid_slope(_tanh_argument(x)), inner)


@triton.jit
def gate_silu(x):
    return sigmoid(x)


@triton.jit
def slope_silu(x):
    return sigmoid_slope(x)


@triton.jit
def gate_gelu_fast(x):
    return sigmoid(_FAST_SCALE * x)


@triton.jit
def slope_gelu_fast(x):
    return _FAST_SCALE * sigmoid_slope(_FAST_SCALE * x)


@triton.jit
def gate_none(x):
    return x * 0.0 + 1.0


@triton.jit
def slope_none(x):
    return x * 0.0


@triton.jit
def add_parts(
    parts,
    total,
    instances,
    COUNT: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Adds the parts ``[instances, COUNT, CHANNELS]`` of a sum over the batch in their order, into ``[CHANNELS, COUNT]``."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = at < COUNT * CHANNELS
    added = tl.zeros([PARTS, BLOCK], tl.float32)
    for first in range(0, instances, PARTS):
        instance = first + tl.arange(0, PARTS)[:, None]
        place = instance.to(tl.int64) * (COUNT * CHANNELS) + at
        added += tl.load(parts + place, mask=there & (instance < instances), other=0.0)
    place = (at % CHANNELS) * COUNT + at // CHANNELS
    tl.store(total + place, tl.sum(added, axis=0, keep_dims=True), mask=there)
