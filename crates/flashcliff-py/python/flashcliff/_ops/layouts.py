"""The form of each tensor of a list, and where others of these forms lie: what an optimiser asks of hundreds of tensors at each step.

The compiled call path has the same class, which looks at everything. The one here is made of loops of built-in functions, for the
sake of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import torch
from torch import Tensor

from . import native

PLAIN = frozenset((Tensor, torch.nn.Parameter))
"""The classes of tensors that have their own memory."""
EMPTY = 8
"""Stands for the address of a tensor without elements. PyTorch says 0, which means no tensor here."""
_LOWEST = 1 << 32
"""No tensor of a usual process lies below this address. Below it we look closer."""

# Descriptors cost half of what `methodcaller` does.
_address, _place, _is_contiguous = Tensor.data_ptr, Tensor.get_device, Tensor.is_contiguous
_size, _strides = Tensor.size, Tensor.stride
_kind, _bytes, _gradient = map(attrgetter, ("dtype", "nbytes", "grad"))


class Layout(Protocol):
    """Shapes, strides, types and devices of a list of plain tensors of one device."""

    def addresses(self, tensors: list[Any]) -> list[int] | None:
        """The address of each tensor, 0 for ``None``, if all are plain and have their forms; else ``None``."""

    def gradients(self, tensors: list[Any]) -> list[int] | None:
        """The address of the gradient of each tensor, 0 for none, if all are plain and have their forms; else ``None``."""

    def hold(self, tensors: list[Any]) -> bool:
        """Whether tensors lie where the tensors did that the layout was made of, in their forms; shapes may not be looked at."""

    def hold_in(self, dictionaries: list[dict[str, Any]], key: str) -> bool:
        """Whether dictionaries have such tensors under a key. The order of axes may not be looked at."""


def layout_of(tensors: list[Tensor]) -> Layout:
    """The layout of plain tensors of one device."""
    return _Layout(tensors) if native.loaded is None else native.loaded.Layout(tensors)


def has_memory(tensor: Tensor) -> bool:
    """Whether all elements of a plain tensor lie within memory that there is."""
    if not tensor.numel():
        return True
    width, offset = tensor.element_size(), tensor.storage_offset()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    # The address of a tensor without a storage, such as a fake tensor, is only the offset.
    is_there = tensor.data_ptr() != width * offset
    return is_there and tensor.untyped_storage().nbytes() >= width * (offset + last + 1)


class _Layout:
    def __init__(self, tensors: list[Tensor]) -> None:
        self._bytes = list(map(_bytes, tensors))
        self._sizes = list(map(_size, tensors))
        self._kinds = list(map(_kind, tensors))
        self._strides = list(map(_strides, tensors))
        self._places = set(map(_place, tensors))
        self._are_contiguous = all(map(_is_contiguous, tensors))
        self._single = [at for at, tensor in enumerate(tensors) if tensor.numel() == 1]
        self._addresses = list(map(_address, tensors))

    def hold(self, tensors: list[Any]) -> bool:
        return self._stand(tensors) and self._lie_alike(tensors, self._strides)

    def hold_in(self, dictionaries: list[dict[str, Any]], key: str) -> bool:
        try:
            return self._stand(list(map(itemgetter(key), dictionaries)))
        except KeyError:
            return False

    def _stand(self, tensors: list[Any]) -> bool:
        try:
            return (
                list(map(_address, tensors)) == self._addresses
                and list(map(_bytes, tensors)) == self._bytes
            )
        except (RuntimeError, TypeError):
            # PyTorch raises for tensors without their own memory.
            return False

    def addresses(self, tensors: list[Any]) -> list[int] | None:
        there = None
        given, sizes, kinds, strides = tensors, self._sizes, self._kinds, self._strides
        types = set(map(type, tensors))
        if type(None) in types:
            types.remove(type(None))
            there = [tensor is not None for tensor in tensors]
            given, sizes, kinds, strides = (
                list(compress(each, there)) for each in (given, sizes, kinds, strides)
            )
        if not types <= PLAIN:
            return None
        try:
            if (
                list(map(_size, given)) != sizes
                or list(map(_kind, given)) != kinds
                or not self._lie_alike(given, strides)
                or not set(map(_place, given)) <= self._places
            ):
                return None
            found = list(map(_address, given))
        except RuntimeError:
            return None
        # Only one element can lie side by side in a view of imaginary parts, which may be negated by a flag.
        single = [tensors[at] for at in self._single]
        if any(tensor is not None and tensor.is_neg() for tensor in single):
            return None
        if found and min(found) < _LOWEST:
            # The address of a tensor whose memory was given back is its offset.
            if not all(has_memory(tensor) for tensor, at in zip(given, found) if at < _LOWEST):
                return None
            found = [address or EMPTY for address in found]
        if there is None:
            return found
        following = iter(found)
        return [next(following) if is_there else 0 for is_there in there]

    def gradients(self, tensors: list[Any]) -> list[int] | None:
        return self.addresses(list(map(_gradient, tensors)))

    def _lie_alike(self, tensors: Sequence[Tensor], strides: list[tuple[int, ...]]) -> bool:
        if self._are_contiguous:
            return all(map(_is_contiguous, tensors))
        return list(map(_strides, tensors)) == strides
