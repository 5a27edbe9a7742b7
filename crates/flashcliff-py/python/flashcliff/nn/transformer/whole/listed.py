"""Both passes of a block as lists of calls of kernels, for shapes that come again.

Where all products of a block are kernels of ours, nothing but kernels runs between its input and its output, and the extension
makes all calls of a pass at once. A list is made by the functions of the passes, with slots in place of tensors, so the
kernels, their order and their results are those of a pass without a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...._ops import calls
from ...._ops.calls import Draft, Slot
from ...._ops.items import Pair
from ...._ops.lists import List, View, have_one_place, place_of
from ...._ops.spots import below_autograd
from .. import packed
from ..items import rows_of
from .backward import Read, backward, matrix_in_place
from .call import Given, Kept, Others
from .forward import forward

__all__ = ["Lists", "Saved", "Taken", "lists_of"]

# Ragged batches have ever new numbers of rows.
_MOST = 256


class Taken(NamedTuple):
    """The tensors that a forward pass takes, with the axes of a batch."""

    here: Pair
    pending: Pair | None
    reference: Tensor | None
    """The factors of joins ``[blades, rows]``."""
    others: Others
    parameters: Sequence[Tensor]

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in the order in which a draft takes them."""
        log_weights, (first, second) = self.others
        some = *self.here, *(self.pending or ()), self.reference, log_weights, *first, *second
        yield from (x for x in some if x is not None)
        yield from self.parameters


class Saved(NamedTuple):
    """The tensors that a backward pass takes besides the memory of the forward pass, with the axes of a batch."""

    norms: tuple[Pair, Pair]
    """The inputs of both norms."""
    reference: Tensor | None
    others: Others
    of_total: Pair | None
    of_after: Pair | None
    of_out: Pair
    """The gradients of what the forward pass made."""

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in the order in which a draft takes them."""
        log_weights, (first, second) = self.others
        some = *self.norms[0], *self.norms[1], self.reference, log_weights, *first, *second
        of_made = *(self.of_total or ()), *(self.of_after or ()), *self.of_out
        return (x for x in (*some, *of_made) if x is not None)


class Lists:
    """The lists of calls of one shape: one of the forward pass, and one for each way in which gradients come."""

    def __init__(self, given: Given, taken: Taken) -> None:
        draft = Draft(taken.here[0].device)
        here = _pair(draft, taken.here)
        pending = None if taken.pending is None else _pair(draft, taken.pending)
        reference, others = _given(draft, taken.reference), _others(draft, taken.others)
        parameters: Any = [draft.given(p) for p in taken.parameters]
        bounded = _bounded(draft, given)
        elements = packed.elements_from(given.table, parameters)
        made = forward(bounded, here, pending, reference, others, elements)
        del elements
        pairs = [(None, None) if x is None else x.tensors(given.batch) for x in made[:3]]
        kept: Any = () if made.kept is None else made.kept.flat()
        self._types = [torch.float32 if slot is None else slot.dtype for slot in kept]
        del made
        outputs: Any = [slot for pair in pairs for slot in pair]
        self._forward = List(draft, (outputs, kept), given.table)
        self._parameters = [p.shape for p in taken.parameters]
        self._backward: dict[Any, List | None] = {}

    def forward(self, given: Given, taken: Taken) -> tuple[list[Tensor | None], Tensor]:
        """Makes the calls of the forward pass. Returns multivectors and scalars of the sum, if it was formed, and of both results;
        and the memory of what the backward pass reads."""
        tensors = chain(taken.tensors(), _bounds(given))
        buffer, memory = self._forward.run(taken.here[0], tensors)
        return _parts(buffer, self._forward.views[0]), memory

    def kept(self, memory: Tensor) -> Kept:
        """The values that a forward pass left in memory."""
        return Kept.of(
            tuple(
                None if view is None else memory.view(dtype).as_strided(*view)
                for view, dtype in zip(self._forward.views[1], self._types, strict=True)
            )
        )

    def backward(self, given: Given, saved: Saved, memory: Tensor) -> list[Tensor | None] | None:
        """Makes the calls of the backward pass. Returns the gradients of the sum that the block began with, of parameters besides
        those of linear layers, and of these; ``None`` for gradients that come in a way that has no list."""
        mv, s = saved.of_out
        place = place_of(mv, s, given.structure.hidden.scalar_start * mv.itemsize)
        there = saved.of_total is None, saved.of_after is None
        key = (*place, *there, *[x.stride() for x in saved.tensors()])
        if key not in self._backward:
            self._backward[key] = self._draft(given, saved)
        found = self._backward[key]
        if found is None:
            return None
        tensors = chain((memory,), saved.tensors(), _bounds(given))
        total, parameters = found.run(mv, tensors)
        return [*_parts(total, found.views[0]), *_parts(parameters, found.views[1])]

    def _draft(self, given: Given, saved: Saved) -> List | None:
        parts = [x for x in rows_of(saved.of_out) if x is not None]
        pairs = *saved.norms, saved.of_total, saved.of_after, saved.of_out
        matrix = matrix_in_place(given, parts)
        if matrix is None or not _have_rows(pairs):
            return None
        draft = Draft(matrix.device)
        memory = draft.buffer()
        kept = tuple(
            None if view is None else Slot(memory.region, view.shape, view.strides, dtype, view.offset)
            for view, dtype in zip(self._forward.views[1], self._types, strict=True)
        )
        norms: Any = tuple([_pair(draft, x) for x in saved.norms])
        reference, others = _given(draft, saved.reference), _others(draft, saved.others)
        of_total = None if saved.of_total is None else _pair(draft, saved.of_total)
        of_after = None if saved.of_after is None else _pair(draft, saved.of_after)
        of_out: Any = _pair(draft, saved.of_out)[0].as_strided(matrix.shape, matrix.stride())
        read = Read(norms, reference, others, Kept.of(kept), of_total, of_after, of_out)
        made = backward(_bounded(draft, given), read)
        outputs: list[Any] = [made.log_weights, *made.gains]
        start, flat = 0, made.parameters
        for shape in self._parameters:
            outputs.append(flat.narrow(0, start, shape.numel()).view(shape))
            start += shape.numel()
        total: Any = made.total.tensors(given.batch)
        del made, flat
        return List(draft, (total, outputs), given.table)


def lists_of(given: Given, taken: Taken) -> Lists | None:
    """The lists of a call; ``None`` for a shape that has not come before, or that has none."""
    if calls.are_paused() or given.spread or not all(map(all, given.modes)):
        return None
    if given.table.spread is None or not given.structure.contiguous:
        return None
    known, key = given.structure.lists, _key(given, taken)
    if key not in known:
        if len(known) >= _MOST:
            known.clear()
        # Many shapes never come again.
        known[key] = None
        return None
    found: Lists | None = known[key]
    if found is None and _have_rows((taken.here, taken.pending)):
        found = known[key] = Lists(given, taken)
    return found


def _key(given: Given, taken: Taken) -> Any:
    """The properties that calls of one list share, besides the structure."""
    tensors = *taken.here, *(taken.pending or ()), taken.reference, taken.others.log_weights
    strides = [None if x is None else x.stride() for x in tensors]
    gains = [x is None for pair in taken.others.gains for x in pair]
    mv, (_, sequences, queries, keys, tf32) = taken.here[0], given.attention
    rows = sequences, queries[:2], keys[:2], queries.bounds is None, tf32
    shape = given.batch, given.features, given.eps, given.differentiated, mv.dtype, mv.device
    return (*shape, *rows, taken.pending is None, *strides, *gains, *given.activations)


def _have_rows(pairs: Sequence[Pair | None]) -> bool:
    """Whether the axes of items are one axis of rows, without a copy."""
    return all(
        x is None or have_one_place(x, row)  # type: ignore[arg-type]
        for pair in pairs
        if pair is not None
        for x, row in zip(pair, rows_of(pair), strict=True)
    )


def _parts(buffer: Tensor, views: Sequence[View | None]) -> list[Tensor | None]:
    with below_autograd():
        return [None if view is None else buffer.as_strided(*view) for view in views]


def _bounds(given: Given) -> list[Tensor]:
    """The bounds of sequences."""
    return [x.bounds for x in (given.attention.queries, given.attention.keys) if x.bounds is not None]


def _pair(draft: Draft, pair: Pair) -> Any:
    """Slots of items with one axis of rows."""
    return tuple([_given(draft, x) for x in rows_of(pair)])


def _others(draft: Draft, others: Others) -> Others:
    log_weights, (first, second) = others
    of_weights = _given(draft, log_weights)
    gains: Any = [(_given(draft, mv), _given(draft, s)) for mv, s in (first, second)]
    return Others(of_weights, tuple(gains))  # type: ignore[arg-type]


def _given(draft: Draft, x: Tensor | None) -> Any:
    return None if x is None else draft.given(x)


def _bounded(draft: Draft, given: Given) -> Given:
    """The properties of a call whose bounds are slots."""
    rows = given.attention.queries, given.attention.keys
    queries, keys = (x._replace(bounds=_given(draft, x.bounds)) for x in rows)
    return given._replace(attention=given.attention._replace(queries=queries, keys=keys))
