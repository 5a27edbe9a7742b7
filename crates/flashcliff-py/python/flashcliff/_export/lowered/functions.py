"""Functions of one number that programs call, by functions that every host has."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..operations import Operations, Tensor

__all__ = ["call", "hypot", "scaled"]

_TANH_SCALE = 2 * math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715
_FAST_SCALE = 1.702


def scaled(ops: Operations, x: Tensor, factor: float) -> Tensor:
    """``factor * x``."""
    return x if factor == 1 else ops.multiply(x, np.asarray(float(factor)))


def _gelu(ops: Operations, x: Tensor) -> Tensor:
    half = np.asarray(0.5)
    erf = ops.function("erf", scaled(ops, x, math.sqrt(0.5)))
    return ops.add(ops.multiply(erf, half), half)


def _tanh(ops: Operations, x: Tensor) -> Tensor:
    square = scaled(ops, ops.multiply(x, x), _TANH_CUBIC * _TANH_SCALE)
    slope = ops.add(square, np.asarray(_TANH_SCALE))
    return ops.function("sigmoid", ops.multiply(x, slope))


def _fast(ops: Operations, x: Tensor) -> Tensor:
    return ops.function("sigmoid", scaled(ops, x, _FAST_SCALE))


_GATES: dict[str, Callable[[Operations, Tensor], Tensor]] = {
    "gelu_gate": _gelu,
    "tanh_gate": _tanh,
    "fast_gate": _fast,
}


def call(ops: Operations, name: str, x: Tensor) -> Tensor:
    """A function of each element."""
    gate = _GATES.get(name)
    return ops.function(name, x) if gate is None else gate(ops, x)


def hypot(ops: Operations, x: Tensor, y: Tensor) -> Tensor:
    """The root of both squares, where a square may leave the range of numbers. One of both is not 0."""
    x, y = ops.function("abs", x), ops.function("abs", y)
    larger = ops.maximum(x, y)
    x, y = ops.divide(x, larger), ops.divide(y, larger)
    squares = ops.add(ops.multiply(x, x), ops.multiply(y, y))
    return ops.multiply(larger, ops.function("sqrt", squares))
