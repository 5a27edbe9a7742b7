"""The operations that a lowered network is made of: what ONNX, PyTorch and NumPy have alike.

A tensor is an array of NumPy, whose numbers are known, or a handle of a host. An operation of arrays alone is computed at once, in float64,
so what depends on parameters only is never part of a lowered network. All others are methods of the same names of the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["Host", "Operations", "Size", "Tensor"]

Tensor = Any
"""An array of NumPy, or a handle of a host."""
Size = Any
"""An integer, or a handle of a host of one that a run gives."""


class Host(Protocol):
    """What computes, or writes down what is to be computed."""

    def constant(self, array: np.ndarray) -> Any:
        """A tensor of known numbers."""

    def size(self, x: Any, axis: int) -> Size:
        """The elements of a tensor along an axis."""


class Operations:
    """The operations, on a host."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def _do(self, name: str, tensors: Sequence[Tensor], *options: Any) -> Tensor:
        if all(isinstance(x, np.ndarray) for x in tensors):
            return getattr(Known, name)(*tensors, *options)
        given = [self.host.constant(x) if isinstance(x, np.ndarray) else x for x in tensors]
        return getattr(self.host, name)(*given, *options)

    # Functions of elements.

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._do("add", (x, y))

    def subtract(self, x: Tensor, y: Tensor) -> Tensor:
        return self._do("subtract", (x, y))

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        return self._do("multiply", (x, y))

    def divide(self, x: Tensor, y: Tensor) -> Tensor:
        return self._do("divide", (x, y))

    def maximum(self, x: Tensor, y: Tensor) -> Tensor:
        return self._do("maximum", (x, y))

    def greater(self, x: Tensor, y: Tensor) -> Tensor:
        """1 where ``x > y``, else 0."""
        return self._do("greater", (x, y))

    def function(self, name: str, x: Tensor) -> Tensor:
        """``sqrt``, ``exp``, ``sin``, ``cos``, ``sigmoid``, ``erf``, ``abs``, ``relu`` or ``negative`` of each element."""
        return self._do("function", (x,), name)

    # Sums and products.

    def sum(self, x: Tensor, axis: int) -> Tensor:
        """The sum over an axis, which stays with one element."""
        return self._do("sum", (x,), axis)

    def softmax(self, x: Tensor) -> Tensor:
        """The softmax over the last axis."""
        return self._do("softmax", (x,))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._do("matmul", (x, y))

    # Elements in other places.

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        """One size may be -1."""
        if not isinstance(x, np.ndarray):
            return self.host.reshape(x, list(sizes))
        return x.reshape([int(size) for size in sizes])

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        axes = tuple(axes)
        return x if axes == tuple(range(len(axes))) else self._do("transpose", (x,), axes)

    def concatenate(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        parts = list(parts)
        return parts[0] if len(parts) == 1 else self._do("concatenate", parts, axis)

    def slice(self, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        return self._do("slice", (x,), axis, start, stop)

    def choose(self, x: Tensor, axis: int, places: Sequence[int]) -> Tensor:
        """The elements at known places of an axis."""
        places = [int(place) for place in places]
        if places == list(range(places[0], places[0] + len(places))):
            return self.slice(x, axis, places[0], places[0] + len(places))
        return self._do("choose", (x,), axis, places)

    # Places that a run gives.

    def size(self, x: Tensor, axis: int) -> Size:
        return x.shape[axis] if isinstance(x, np.ndarray) else self.host.size(x, axis)

    def take(self, x: Tensor, places: Tensor, axis: int) -> Tensor:
        """The elements at places of an axis that a run gives."""
        return self._do("take", (x, places), axis)

    def scatter(self, x: Tensor, places: Tensor, count: Size) -> Tensor:
        """The sums of rows ``x[n, k]`` that belong to each of so many places."""
        x = self.host.constant(x) if isinstance(x, np.ndarray) else x
        return self.host.scatter(x, places, count)


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "negative": np.negative,
}


class Known:
    """The operations on arrays of NumPy. It is a host too, of numbers instead of handles."""

    add = staticmethod(np.add)
    subtract = staticmethod(np.subtract)
    multiply = staticmethod(np.multiply)
    divide = staticmethod(np.divide)
    maximum = staticmethod(np.maximum)
    matmul = staticmethod(np.matmul)
    transpose = staticmethod(np.transpose)

    @staticmethod
    def greater(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x > y).astype(np.float64)

    @staticmethod
    def function(x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(_FUNCTIONS[name](x))

    @staticmethod
    def sum(x: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(x.sum(axis, keepdims=True))

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))

    @staticmethod
    def concatenate(*parts_and_axis: Any) -> np.ndarray:
        *parts, axis = parts_and_axis
        return np.concatenate(parts, axis)

    @staticmethod
    def slice(x: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
        return x.take(range(start, stop), axis)

    @staticmethod
    def choose(x: np.ndarray, axis: int, places: Sequence[int]) -> np.ndarray:
        return x.take(places, axis)

    @staticmethod
    def take(x: np.ndarray, places: np.ndarray, axis: int) -> np.ndarray:
        return x.take(places, axis)
