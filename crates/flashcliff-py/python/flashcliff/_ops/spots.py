"""Items among the columns of a matrix, an item in a row: what kernels read and write where no tensor of its own is wanted.

Tensors of the parts of a matrix take the host longer to make than a kernel takes to launch.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Layout", "Spot", "side_by_side"]


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

    def multivectors(self, *batch: int) -> Tensor:
        """Multivectors ``[blades, *batch, channels]``, in place; one axis of all rows by default."""
        matrix, layout = self.matrix, self.layout
        at = matrix.storage_offset() + layout.start
        shape = batch or (matrix.shape[0],)
        size_of_all = (layout.blades, *shape, layout.channels)
        return matrix.as_strided(size_of_all, (layout.step, *self._strides(shape), 1), at)

    def _strides(self, batch: tuple[int, ...]) -> list[int]:
        """The strides of the axes of rows."""
        strides = [self.matrix.stride(0)]
        for size in reversed(batch[1:]):
            strides.insert(0, strides[0] * size)
        return strides

    def scalars(self) -> Tensor:
        """Scalars ``[rows, scalars]``, in place."""
        return self.matrix.narrow(1, self.layout.scalar_start, self.layout.scalars)

    def pair(self) -> tuple[Tensor, Tensor | None]:
        """Multivectors ``[blades, rows, channels]`` and scalars ``[rows, scalars]``, in place."""
        return self.multivectors(), self.scalars() if self.layout.scalars else None

    def pair_of(
        self, batch: tuple[int, ...], differentiated: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The pair with the axes of a batch: tensors for autograd, or else views, which take the host less time."""
        if differentiated:
            return self.tensors(batch)
        mv, s = self.multivectors(*batch), self.scalars() if self.layout.scalars else None
        return mv, s if s is None or len(batch) == 1 else s.unflatten(0, batch)

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]``.

        They are tensors of their own on the same memory, not views, which no caller could change in place.
        """
        matrix, layout = self.matrix, self.layout
        storage, at = matrix.untyped_storage(), matrix.storage_offset()
        strides = self._strides(batch)
        shape = (layout.blades, *batch, layout.channels)
        mv = matrix.new_empty(0).set_(storage, at + layout.start, shape, (layout.step, *strides, 1))
        if not layout.scalars:
            return mv, None
        shape = (*batch, layout.scalars)
        s = matrix.new_empty(0).set_(storage, at + layout.scalar_start, shape, (*strides, 1))
        return mv, s
