"""Items among the columns of a matrix, an item in a row: what kernels read and write where no tensor of its own is wanted.

Tensors of the parts of a matrix take the host longer to make than a kernel takes to launch.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Layout", "Spot", "below_autograd", "side_by_side"]

_KEYS = functools.reduce(
    operator.or_,
    map(
        torch._C.DispatchKeySet,
        [torch._C.DispatchKey.ADInplaceOrView, torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.AutogradCUDA],
    ),
)


def below_autograd() -> Any:
    """A context whose operations autograd does not see: their results are no views, and take the host less time."""
    return torch._C._ExcludeDispatchKeyGuard(_KEYS)


class Layout(NamedTuple):
    """The columns of items."""

    blades: int
    start: int
    """The column of the first channel of the first blade."""
    step: int
    """The columns from a blade to the next."""
    channels: int
    scalar_start: int
    """The column of the first scalar."""
    scalars: int


def side_by_side(blades: int, channels: int, scalars: int, start: int = 0) -> Layout:
    """The layout of all blades, and then scalars."""
    return Layout(blades, start, channels, channels, start + blades * channels, scalars)


class Spot:
    """Items in a matrix ``[rows, width]`` whose last axis is contiguous.

    Args:
        matrix: the matrix.
        layout: the columns that are the items.
    """

    __slots__ = ("layout", "matrix")

    def __init__(self, matrix: Tensor, layout: Layout) -> None:
        self.matrix = matrix
        self.layout = layout

    def place(self) -> tuple[int, int, int, int, int]:
        """The address, the strides of blades and of rows of multivectors; the address and the stride of scalars."""
        matrix, (_, start, step, _, scalar_start, scalars) = self.matrix, self.layout
        address, size, width = matrix.data_ptr(), matrix.itemsize, matrix.stride(0)
        if not scalars:
            return address + start * size, step, width, 0, 0
        return address + start * size, step, width, address + scalar_start * size, width

    def of_scalars(self) -> Spot:
        """The scalars alone."""
        return Spot(self.matrix, self.layout._replace(channels=0))

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]``.

        They are tensors of their own on the same memory, not views, which no caller could change in place.
        """
        matrix, (blades, start, step, channels, scalar_start, scalars) = self.matrix, self.layout
        at, strides = matrix.storage_offset(), self._strides(batch)
        with below_autograd():
            mv = matrix.as_strided((blades, *batch, channels), (step, *strides, 1), at + start)
            if not scalars:
                return mv, None
            return mv, matrix.as_strided((*batch, scalars), (*strides, 1), at + scalar_start)

    def _strides(self, batch: tuple[int, ...]) -> list[int]:
        """The strides of the axes of rows."""
        strides = [self.matrix.stride(0)]
        for size in reversed(batch[1:]):
            strides.insert(0, strides[0] * size)
        return strides
