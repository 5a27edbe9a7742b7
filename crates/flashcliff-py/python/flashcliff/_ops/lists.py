"""Runs lists of calls of :mod:`.calls` with the memory of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from . import doors, items
from .calls import Draft, Slot

__all__ = ["List", "View", "have_one_place", "place_of"]


class View(NamedTuple):
    """A tensor in a buffer; strides and offset count elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @staticmethod
    def of(slot: Slot, byte: int) -> View:
        """The view of a slot whose memory begins at a byte."""
        offset = byte // slot.itemsize + slot.storage_offset()
        return View(tuple(slot.shape), tuple(slot.stride()), offset)


class List:
    """A finished draft.

    Args:
        draft: the draft.
        groups: slots that outlast a run, with ``None`` for what there is not.
        constants: what has memory whose addresses are in the list.
    """

    def __init__(
        self, draft: Draft, groups: Sequence[Sequence[Slot | None]], constants: object
    ) -> None:
        found = draft.finish([[slot for slot in group if slot is not None] for group in groups])
        self.views: list[list[View | None]] = []
        """For each group where its slots lie in its buffer."""
        for group, places in zip(groups, found.places, strict=True):
            each = iter(places)
            self.views.append([None if slot is None else View.of(slot, next(each)) for slot in group])
        self.sizes, self.scratch = found.groups, found.scratch
        """The bytes of the buffers of groups, and of all else."""
        self._calls, self._constants = found.calls, constants

    def run(self, like: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Makes all calls on tensors in the order of the draft, and returns a buffer for each group, of the type of a tensor."""
        given = list(tensors)
        addresses = [x.data_ptr() for x in given]
        doors.check_addresses("a block of a transformer", given, addresses)
        width = like.itemsize
        buffers = [like.new_empty(size // width) for size in self.sizes]
        # The allocator keeps it for what follows on the stream.
        scratch = like.new_empty(self.scratch // width)
        addresses += [buffer.data_ptr() for buffer in buffers]
        addresses.append(scratch.data_ptr())
        items.launch(like, lambda stream: self._calls.run(addresses, stream))
        return buffers


def have_one_place(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors begin at the same address."""
    return x.data_ptr() == y.data_ptr()


def place_of(mv: Tensor, s: Tensor | None, size: int) -> tuple[bool, int]:
    """Whether scalars lie so many bytes behind multivectors, and by how many bytes these miss a multiple of 16."""
    start = mv.data_ptr()
    return s is None or s.data_ptr() == start + size, start % 16
