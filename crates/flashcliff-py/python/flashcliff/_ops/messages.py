"""Operators on the rows of relations, whose tensors are of rows or of what rows belong to, and sums of their results
over the rows of each target.

The gradient of such a function is one too: the operator's gradient, on the same rows, summed over the rows of what
the argument is of. So one function of autograd has derivatives of every order, and keeps nothing but its arguments.
On a GPU it is one kernel, which writes nothing of the size of all rows but results of rows, and on the CPU one call
that computes some rows at a time; in transforms and traces it is composed of gatherings, the operator and sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from . import asked, batches, derived, doors, segments
from .op import CACHED, present
from .run import launch
from .tensor_types import NAMES

ROWS = -1
"""The end of a tensor of rows; others are the numbers of relations."""

PARAMETER = -2
"""The end of a tensor without an axis of items."""


class Form(NamedTuple):
    """An operator, and the items that its tensors are of."""

    of: str
    """The key of the operator."""
    ends: tuple[int, ...]
    """The items of each argument: :data:`ROWS`, the number of a relation, or :data:`PARAMETER`."""
    ones: tuple[bool, ...]
    """Whether each argument has one channel, which is the same for all."""
    to: int
    """The items of results: :data:`ROWS`, or a relation, over the rows of whose targets they are summed."""
    sums: tuple[bool, ...]
    """Whether each result is summed over its channels."""


def call(form: Form, tensors: Sequence[Tensor], relations: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results, which can be differentiated again.

    Args:
        form: the operator, and the items of its tensors.
        tensors: its arguments, ``[components, items, channels]`` and parameters ``[channels, count]``.
        relations: three tensors of each relation (:mod:`._ops.segments`), all of the same rows.
    """
    if torch.compiler.is_compiling() or not doors.opens(*tensors, *relations):
        return _composed(form, tensors, relations)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Messages.apply(form, *tensors, *relations)  # type: ignore[no-any-return]
    return _run(form, tensors, relations)


class _Messages(torch.autograd.Function):
    """Tensors with memory, outside of transforms."""

    @staticmethod
    def forward(ctx, form, *tensors):
        ctx.form = form
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        count = len(form.ends)
        return _run(form, tensors[:count], tensors[count:])

    @staticmethod
    def backward(ctx, *grads):
        count = len(ctx.form.ends)
        # Within a checkpoint they can be asked for once.
        saved = ctx.saved_tensors
        tensors, relations = saved[:count], saved[count:]
        needed = asked.of(ctx, ctx.needs_input_grad[1:])[:count]
        found = gradients(ctx.form, tensors, relations, grads, needed)
        return None, *found, *(None for _ in relations)


def gradients(
    form: Form,
    tensors: Sequence[Tensor],
    relations: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of the arguments that are needed, as calls that can be differentiated again: one for the arguments of each end.

    Args:
        form: the operator, and the items of its tensors.
        tensors: its arguments.
        relations: the tensors of relations.
        grads: the gradients of its results; ``None`` stands for zeros.
        needed: which arguments need a gradient.
    """
    found: list[Tensor | None] = [None] * len(tensors)
    there = tuple(grad is not None for grad in grads)
    for own, places in _gradient_forms(form, there, tuple(needed)):
        compute = _of_rows if form.ends[places[0]] == PARAMETER else call
        results = batches.over(
            lambda given, own=own, compute=compute: compute(own, [*tensors, *given], relations),
            present(grads),
        )
        for at, result in zip(places, results):
            found[at] = result
    return found


@lru_cache(maxsize=4 * CACHED)
def _gradient_forms(
    form: Form, there: tuple[bool, ...], needed: tuple[bool, ...]
) -> list[tuple[Form, list[int]]]:
    """The forms of the gradients of the arguments that are needed, one for each end, with the places of their arguments.

    Args:
        form: the operator, and the items of its tensors.
        there: which of its results have a gradient.
        needed: which arguments need one.
    """
    found: list[tuple[Form, list[int]]] = []
    if not any(there):
        return found
    ends = (*form.ends, *(form.to for own in there if own))
    ones = (*form.ones, *(own for own, is_there in zip(form.sums, there) if is_there))
    for end in sorted({end for end, need in zip(form.ends, needed) if need}):
        wanted = [need and own == end for own, need in zip(form.ends, needed)]
        places = [at for at, want in enumerate(wanted) if want]
        of = derived.gradient_key(form.of, there, wanted)
        to, sums = end, tuple(form.ones[at] for at in places)
        if end == PARAMETER:
            to, sums = ROWS, (False,) * len(places)
        found.append((Form(of, ends, ones, to, sums), places))
    return found


def channels_of(form: Form, tensors: Sequence[Tensor]) -> int:
    """The channels of all tensors that have more than one."""
    alike = zip(tensors, form.ends, form.ones)
    return next((t.shape[-1] for t, end, one in alike if end != PARAMETER and not one), 1)


def _of_rows(form: Form, tensors: Sequence[Tensor], relations: Sequence[Tensor]) -> Sequence[Tensor]:
    """The results of all rows: the operator on what rows belong to."""
    channels = channels_of(form, tensors)
    given = []
    for tensor, end, one in zip(tensors, form.ends, form.ones):
        if end >= 0:
            lists = list(_of(relations, end))
            tensor = segments.call(segments.GATHER, tensor, lists, "sum")
        given.append(tensor.expand(-1, -1, channels) if one else tensor)
    return derived.call(form.of, given)


def _composed(form: Form, tensors: Sequence[Tensor], relations: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results, of functions that transforms and traces know."""
    found = []
    for result, over_channels in zip(_of_rows(form, tensors, relations), form.sums):
        if over_channels:
            result = result.sum(-1, keepdim=True)
        if form.to >= 0:
            result = segments.call(segments.SUM, result, list(_of(relations, form.to)), "sum")
        found.append(result)
    return tuple(found)


def _of(relations: Sequence[Tensor], at: int) -> Sequence[Tensor]:
    """The tensors of a relation."""
    return relations[segments.LISTS * at : segments.LISTS * (at + 1)]


def _run(form: Form, tensors: Sequence[Tensor], relations: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results, by a kernel if there is one."""
    first, device = tensors[0], relations[0].device
    alike = all(own.device == device and own.dtype == first.dtype for own in tensors)
    kernel = _kernel(form) if alike and _core.CUDA and device.type == "cuda" else None
    is_host = alike and device.type == "cpu" and first.dtype in _HOST
    if (kernel is None and not is_host) or first.dtype not in NAMES:
        # Of tensors that differ the operator says what is wrong.
        with torch.no_grad():
            return _composed(form, tensors, relations)
    given = [_with_channels(tensor) for tensor in tensors]
    doors.check("messages", (*given, *relations), ())
    channels = channels_of(form, given)
    items = relations[0].shape[0] if form.to < 0 else _of(relations, form.to)[1].shape[0] - 1
    operator = derived.operator_of(form.of)
    found = tuple(
        first.new_empty(int(axes[0]), items, 1 if over_channels else channels)
        for (_, axes), over_channels in zip(operator.outputs, form.sums)
    )
    lists = []
    for at in range(len(relations) // segments.LISTS):
        own = _of(relations, at)
        lists.append((tuple(tensor.data_ptr() for tensor in own), own[1].shape[0] - 1))
    places, made = [_strided(tensor) for tensor in given], [tensor.data_ptr() for tensor in found]
    sizes = relations[0].shape[0], channels
    if kernel is not None:
        name = NAMES[first.dtype]
        launch(first, lambda target: kernel.run((places, made), lists, sizes, name, target))
        return found
    reaches = zip(places, (_reach(tensor) for tensor in given))
    lengths = zip(made, (tensor.numel() for tensor in found))
    addresses = list(reaches), list(lengths)
    is_f64 = first.dtype == torch.float64
    _core.run_messages(operator, _core_form(form), addresses, lists, sizes, is_f64)
    return found


_HOST = torch.float32, torch.float64
"""The element types that the CPU computes with."""


def _with_channels(tensor: Tensor) -> Tensor:
    """The tensor with contiguous channels, and parameters without gaps."""
    is_strided = tensor.dim() == 3 and (tensor.stride(-1) == 1 or tensor.shape[-1] == 1)
    if is_strided and not tensor.is_neg():
        return tensor
    return tensor.contiguous().resolve_neg()


def _strided(tensor: Tensor) -> tuple[int, int, int]:
    """The address, and the elements from a component and from an item to the next; strides of a parameter are not read."""
    stride = tensor.stride()
    return tensor.data_ptr(), stride[0], stride[1]


def _reach(tensor: Tensor) -> int:
    """The elements from the first to the last."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))


@lru_cache(maxsize=4 * CACHED)
def _core_form(form: Form) -> tuple[list[tuple[int | None, bool]], int | None, list[bool]]:
    """The form as the extension takes it."""
    inputs = [(end if end >= 0 else None, one) for end, one in zip(form.ends, form.ones)]
    return inputs, form.to if form.to >= 0 else None, list(form.sums)


@lru_cache(maxsize=4 * CACHED)
def _kernel(form: Form) -> _core.Messages | None:
    """The kernel; ``None`` if there is none for such an operator."""
    try:
        return _core.Messages(derived.operator_of(form.of), *_core_form(form))
    except ValueError:
        return None
