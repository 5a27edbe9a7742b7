"""Lists of calls of kernels, made once for tensors that have no memory yet.

A list runs with one call of the extension, where calls of kernels one by one take the host longer than a GPU takes for few
items. The functions of :mod:`.items`, :mod:`.attention` and :mod:`.block_sparse` put a call into a list, in place of launching
it, when they are given a :class:`Slot` in place of a tensor.

The memory of slots is planned when a list ends: what outlasts it lies in buffers that its caller makes, all else in one
buffer, where slots share memory that are not needed at the same time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core

__all__ = ["Draft", "Finished", "Slot", "are_paused", "pause", "paused", "resume"]

_ALIGNED = 256
"""The bytes that all places of slots are multiples of."""

_pauses = 0
_COUNTING = threading.Lock()


def pause() -> None:
    """Lists are not used in this process until :func:`resume`, so that each kernel is called by its function.

    That is for all threads, as what watches kernels is; results are the same either way.
    """
    global _pauses
    with _COUNTING:
        _pauses += 1


def resume() -> None:
    """Ends a :func:`pause`."""
    global _pauses
    with _COUNTING:
        _pauses -= 1


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Lists are not used meanwhile."""
    pause()
    try:
        yield
    finally:
        resume()


def are_paused() -> bool:
    """Whether lists are not used."""
    return _pauses > 0


class _Region:
    """The memory of slots. It ends with the last of them."""

    __slots__ = ("draft", "number")

    def __init__(self, draft: Draft, size: int) -> None:
        self.draft = draft
        self.number = len(draft.spans)
        draft.spans.append(_Span(size, len(draft.calls)))

    def __del__(self) -> None:
        self.draft.spans[self.number].died = len(self.draft.calls)


class _Span:
    """The bytes of a region, and the calls in whose course it is needed."""

    __slots__ = ("born", "buffer", "died", "size", "start")

    def __init__(self, size: int, born: int) -> None:
        self.size, self.born = size, born
        self.died: int | None = None
        self.buffer: int | None = None
        self.start = 0


class Slot:
    """A tensor without memory. It has of a tensor what descriptions of calls of kernels need; strides count elements."""

    __slots__ = ("_offset", "_strides", "dtype", "region", "shape")

    def __init__(
        self,
        region: _Region,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
        offset: int = 0,
    ) -> None:
        self.region, self.shape, self.dtype = region, torch.Size(shape), dtype
        self._strides, self._offset = tuple(strides), offset

    @property
    def device(self) -> torch.device:
        return self.region.draft.device

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address, open until a list runs."""
        region = self.region.number << _core.CallList.OFFSET_BITS
        return _core.CallList.OPEN + region + self._offset * self.dtype.itemsize

    def storage_offset(self) -> int:
        return self._offset

    def stride(self, axis: int | None = None) -> Any:
        return self._strides if axis is None else self._strides[axis]

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return self.shape.numel()

    def is_contiguous(self) -> bool:
        return all(
            size == 1 or own == dense
            for size, own, dense in zip(self.shape, self._strides, _dense(self.shape), strict=True)
        )

    def contiguous(self) -> Slot:
        assert self.is_contiguous()
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def new_empty(self, *shape: Any, dtype: torch.dtype | None = None) -> Slot:
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self.region.draft.empty(sizes, dtype or self.dtype)

    def as_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int = -1) -> Slot:
        return Slot(self.region, shape, strides, self.dtype, self._offset if offset < 0 else offset)

    def narrow(self, axis: int, start: int, length: int) -> Slot:
        shape = [*self.shape]
        shape[axis] = length
        at = self._offset + start * self._strides[axis]
        return self.as_strided(shape, self._strides, at)

    def view(self, shape: Sequence[int]) -> Slot:
        assert self.is_contiguous()
        return self.as_strided(shape, _dense(shape))

    def transpose(self, a: int, b: int) -> Slot:
        shape, strides = [*self.shape], [*self._strides]
        for x in (shape, strides):
            x[a], x[b] = x[b], x[a]
        return self.as_strided(shape, strides)

    def unsqueeze(self, axis: int) -> Slot:
        shape, strides = [*self.shape], [*self._strides]
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return self.as_strided(shape, strides)


def _dense(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return strides


class Finished(NamedTuple):
    """A list, and the buffers that its caller makes for a run."""

    calls: Any
    """The list of the extension."""
    groups: tuple[int, ...]
    """The bytes of each group."""
    places: tuple[tuple[int, ...], ...]
    """For each slot of each group the byte of its buffer where its memory begins."""
    scratch: int
    """The bytes of all else."""


class Draft:
    """A list while it is made.

    Args:
        device: the device of all tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.calls: Any = _core.CallList()
        self.spans: list[_Span] = []
        self._inputs = 0

    def given(self, x: Tensor) -> Slot:
        """A slot like a tensor whose address a run is given, in the order of these calls."""
        slot = self.empty(x.shape, x.dtype)
        slot._strides = tuple(x.stride())
        self._enter(slot)
        return slot

    def buffer(self) -> Slot:
        """A slot for bytes, as many as there are, whose address a run is given likewise."""
        slot = self.empty((0,), torch.uint8)
        self._enter(slot)
        return slot

    def _enter(self, slot: Slot) -> None:
        span = self.spans[slot.region.number]
        span.buffer = self._inputs
        self._inputs += 1

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Slot:
        """A slot with memory of its own."""
        size = torch.Size(shape).numel() * dtype.itemsize
        return Slot(_Region(self, size), shape, _dense(shape), dtype)

    def finish(self, groups: Sequence[Sequence[Slot]]) -> Finished:
        """Ends the list. The slots of a group outlast it, in a buffer of their own. A run takes the addresses of what it is given,
        of a buffer for each group, and of one for all else, in this order."""
        sizes, places = [], []
        for at, slots in enumerate(groups):
            size, buffer = 0, self._inputs + at
            for slot in slots:
                span = self.spans[slot.region.number]
                if span.buffer is None:
                    span.buffer, span.start = buffer, size
                    size += _up(span.size)
                assert span.buffer == buffer, "what outlasts a list is no input, and in one group"
            sizes.append(size)
            places.append(tuple(self.spans[slot.region.number].start for slot in slots))
        rest = [span for span in self.spans if span.buffer is None]
        scratch = _plan(rest, len(self.calls))
        for span in rest:
            span.buffer = self._inputs + len(groups)
        self.calls.close([(span.buffer, span.start) for span in self.spans])
        return Finished(self.calls, tuple(sizes), tuple(places), scratch)


def _plan(spans: Sequence[_Span], end: int) -> int:
    """Places spans so that none overlaps another that is needed at the same time. Returns the bytes of all."""
    for span in spans:
        span.died = end if span.died is None else span.died
    # No order is the best for all lists.
    orders = (
        sorted(spans, key=lambda span: -span.size),
        sorted(spans, key=lambda span: span.born),
        sorted(spans, key=lambda span: -span.size * (span.died - span.born)),  # type: ignore[operator]
    )
    found = [_in_order(order) for order in orders]
    total, starts = min(found, key=lambda plan: plan[0])
    for span, start in starts.items():
        span.start = start
    return total


def _in_order(spans: Sequence[_Span]) -> tuple[int, dict[_Span, int]]:
    """The bytes of all, and where each begins: at the first place that is free while it is needed."""
    placed: dict[_Span, int] = {}
    total = 0
    for span in spans:
        others = [
            (start, start + other.size)
            for other, start in placed.items()
            if other.born < span.died and span.born < other.died  # type: ignore[operator]
        ]
        at = 0
        for start, end in sorted(others):
            if at + span.size <= start:
                break
            at = max(at, _up(end))
        placed[span] = at
        total = max(total, at + span.size)
    return total, placed


def _up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
