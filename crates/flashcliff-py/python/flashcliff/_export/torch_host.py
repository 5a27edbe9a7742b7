"""The host of PyTorch: each operation is one of PyTorch's own, so that a compiler sees them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Eager"]


class Eager:
    """Operations on tensors of PyTorch. Constants are buffers of a module, which gets those that it does not have yet.

    Args:
        module: the module.
        dtype: the type of all numbers.
    """

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype, device: str) -> None:
        self.module = module
        self.dtype = dtype
        self.device = device
        self._names: dict[Any, str] = {}

    def constant(self, array: np.ndarray) -> Tensor:
        return self._buffer(array, self.dtype)

    def _buffer(self, array: np.ndarray, dtype: torch.dtype) -> Tensor:
        key = dtype, array.shape, array.tobytes()
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"constant_{len(self._names)}"
            own = torch.tensor(array, dtype=dtype, device=self.device)
            self.module.register_buffer(name, own)
        return self.module.get_buffer(name)

    def size(self, x: Tensor, axis: int) -> Any:
        return x.shape[axis]

    add = staticmethod(torch.add)
    subtract = staticmethod(torch.subtract)
    multiply = staticmethod(torch.multiply)
    divide = staticmethod(torch.divide)
    maximum = staticmethod(torch.maximum)
    matmul = staticmethod(torch.matmul)

    def greater(self, x: Tensor, y: Tensor) -> Tensor:
        return (x > y).to(self.dtype)

    @staticmethod
    def function(x: Tensor, name: str) -> Tensor:
        found: Tensor = getattr(torch, name)(x)
        return found

    @staticmethod
    def sum(x: Tensor, axis: int) -> Tensor:
        return x.sum(axis, keepdim=True)

    @staticmethod
    def softmax(x: Tensor) -> Tensor:
        return x.softmax(-1)

    @staticmethod
    def reshape(x: Tensor, sizes: Sequence[Any]) -> Tensor:
        return x.reshape(list(sizes))

    @staticmethod
    def transpose(x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(list(axes))

    @staticmethod
    def concatenate(*parts_and_axis: Any) -> Tensor:
        *parts, axis = parts_and_axis
        return torch.cat(parts, axis)

    @staticmethod
    def slice(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
        return x.narrow(axis, start, stop - start)

    def choose(self, x: Tensor, axis: int, places: Sequence[int]) -> Tensor:
        return x.index_select(axis, self._buffer(np.array(places), torch.int64))

    @staticmethod
    def take(x: Tensor, places: Tensor, axis: int) -> Tensor:
        return x.index_select(axis, places)

    @staticmethod
    def scatter(x: Tensor, places: Tensor, count: Any) -> Tensor:
        zeros = x.new_zeros((count, x.shape[1]))
        return zeros.index_add(0, places, x)

    @staticmethod
    def most(places: Tensor) -> Any:
        """One more than the largest place."""
        count = places.max().item() + 1
        torch._check(count >= 0)
        return count

    def positions(self, samples: Any, items: Any) -> Tensor:
        """The position of each row among the items of its sample, ``[rows, 1]``."""
        own = torch.arange(items, device=self.device).to(self.dtype)
        return own.expand(samples, items).reshape(-1, 1)

    def seen(self, lengths: Tensor, items: Any) -> Tensor:
        """0 for keys that are there and minus infinity for others, ``[samples, 1, 1, items]``."""
        # PyTorch 2.6 compares the size of each axis that an index takes whole with the largest integer, and then export refuses that the
        # axis is open.
        is_there = torch.arange(items, device=self.device) < lengths.unsqueeze(1)
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        return torch.where(is_there, zero, -torch.inf).unsqueeze(1).unsqueeze(1)
