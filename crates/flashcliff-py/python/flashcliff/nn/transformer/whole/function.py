"""A block as a function of autograd. Gradients of gradients are those of its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...._ops import calls, doors
from ...._ops.items import Pair
from ...._ops.spots import below_autograd
from .. import packed
from ..items import _again, rows_of
from ..unchanged import Unchanged
from .backward import Read, backward, filled, matrix_of
from .call import Given, Kept, Others
from .forward import forward
from .listed import Lists, Saved, Taken, lists_of

__all__ = ["Composed", "Context", "differentiated", "without_gradients"]

Composed = Callable[[Pair], tuple[Pair, Pair]]
"""The block of a sum by its layers."""


def differentiated(call: Context, taken: Taken) -> tuple[Pair, Pair]:
    """The block of a sum."""
    more = (None, None) if taken.pending is None else taken.pending
    log_weights, (first, second) = taken.others
    others = log_weights, *first, *second
    apply = _Block.apply
    if not torch._C._are_functorch_transforms_active():
        # Without a look at each argument for dead wrappers of transforms, which plain tensors have not.
        apply = super(torch.autograd.Function, _Block).apply
    found = apply(call, *taken.here, *more, *others, *taken.parameters)
    return (found[2], found[3]), (found[4], found[5])


def without_gradients(given: Given, taken: Taken) -> tuple[Pair, Pair]:
    """The block of a sum, outside of autograd."""
    (_, _, *found), _ = _forward(given, taken, lists_of(given, taken))
    return (found[0], found[1]), (found[2], found[3])  # type: ignore[return-value]


def _forward(
    given: Given, taken: Taken, lists: Lists | None
) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
    """Multivectors and scalars of the sum, if it was formed, and of both results; and what the backward pass reads besides."""
    if lists is not None:
        found, memory = lists.forward(given, taken)
        return found, (memory,)
    elements = packed.elements_from(given.table, taken.parameters)
    pending = None if taken.pending is None else rows_of(taken.pending)
    here = rows_of(taken.here)
    made = forward(given, here, pending, taken.reference, taken.others, elements)
    total = (None, None) if made.total is None else made.total.tensors(given.batch)
    after, out = made.after.tensors(given.batch), made.out.tensors(given.batch)
    return (*total, *after, *out), () if made.kept is None else made.kept.flat()


_NOTHING_KNOWN = Unchanged(())


class Context:
    """What a call keeps besides tensors that autograd saves."""

    def __init__(self, given: Given, composed: Composed, reference: Tensor | None) -> None:
        self.given, self.composed, self.reference = given, composed, reference
        self.lists: Lists | None = None
        self.parameters: tuple[Tensor, ...] = ()
        self.unchanged = _NOTHING_KNOWN


class _Block(torch.autograd.Function):
    """The sum, and two pairs whose sum is the block's output. Callers need no sum; gradients of gradients go by it."""

    @staticmethod
    def forward(ctx: Any, call: Context, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        mv, s, more, more_s = tensors[:4]
        others, parameters = tensors[4:9], tensors[9:]
        pending, given = None if more is None else (more, more_s), call.given
        taken = Taken((mv, s), pending, call.reference, _others(others), parameters)
        call.lists = lists_of(given, taken)
        found, values = _forward(given, taken, call.lists)
        ctx.call, ctx.has_pending = call, pending is not None
        call.parameters = tuple(parameters)
        call.unchanged = Unchanged(tensors[:9], call.parameters)
        # The sum is an output only where it was formed: an input would come back as an output of the same name.
        total = taken.here if pending is None else found[:2]
        ctx.save_for_backward(*total, *found[2:4], *others, *values)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> Any:
        call, saved = ctx.call, ctx.saved_tensors
        # The matrices of linear layers and the sum are values of their own, so autograd does not look at these.
        call.unchanged.check()
        norms, others, values = saved[:4], saved[4:9], saved[9:]
        if torch.is_grad_enabled() or doors.composes(*incoming):
            found = _composed(call, norms[:2], others, incoming)
        else:
            found = _gradients(call, norms, others, values, incoming)
        of_total = found[:2]
        of_pending = of_total if ctx.has_pending else (None, None)
        return None, *of_total, *of_pending, *found[2:]


def _others(given: Sequence[Tensor | None]) -> Others:
    return Others(given[0], ((given[1], given[2]), (given[3], given[4])))


def _gradients(
    call: Context,
    norms: Sequence[Tensor | None],
    others: Sequence[Tensor | None],
    values: Sequence[Any],
    incoming: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of the sum, of parameters besides those of linear layers, and of these."""
    given, lists = call.given, call.lists
    if lists is not None:
        if not calls.are_paused():
            found = _listed(call, lists, norms, others, values[0], incoming)
            if found is not None:
                return found
        kept = lists.kept(values[0])
    else:
        kept = Kept.of(tuple(values))
    read = Read(
        norms=(rows_of(norms[:2]), rows_of(norms[2:])),
        reference=call.reference,
        others=_others(others),
        kept=kept,
        of_total=filled(given, incoming[:2]),
        of_after=filled(given, incoming[2:4]),
        of_out=matrix_of(given, incoming[4:], kept.elements),
    )
    made = backward(given, read)
    with below_autograd():
        of_parameters = torch._C._nn.unflatten_dense_tensors(
            made.parameters, list(call.parameters)
        )
    return [*made.total.tensors(given.batch), made.log_weights, *made.gains, *of_parameters]


def _listed(
    call: Context,
    lists: Lists,
    norms: Sequence[Any],
    others: Sequence[Tensor | None],
    memory: Tensor,
    incoming: Sequence[Any],
) -> list[Tensor | None] | None:
    """The gradients of :func:`_gradients` by lists of calls; ``None`` unless all gradients that come are whole."""
    width = 2 if call.given.structure.hidden.scalars else 1
    pairs: list[Any] = []
    for at in range(0, 6, 2):
        some = incoming[at : at + width]
        if any(x is None for x in some):
            if any(x is not None for x in some):
                return None
            pairs.append(None)
        else:
            pairs.append(tuple(incoming[at : at + 2]))
    if pairs[2] is None:
        return None
    both = tuple(norms[:2]), tuple(norms[2:])
    saved = Saved(both, call.reference, _others(others), *pairs)  # type: ignore[arg-type]
    return lists.backward(call.given, saved, memory)


def _composed(
    call: Context,
    total: Sequence[Tensor | None],
    others: Sequence[Tensor | None],
    incoming: tuple[Tensor | None, ...],
) -> list[Tensor | None]:
    """The gradients by the block's layers, with derivatives of their own."""
    structure = call.given.structure
    own = *others, *call.parameters
    every = zip((*structure.other_slots, *structure.slots), own, strict=True)
    slots = [
        (parts, name, at)
        for at, ((parts, name), tensor) in enumerate(every, len(total))
        if parts is not None and tensor is not None
    ]
    before = [parts[name] for parts, name, _ in slots]

    def function(*tensors: Tensor | None) -> list[Tensor]:
        # Others may stand where the parameters of the call stood, such as those of `torch.func.functional_call`.
        for parts, name, at in slots:
            parts[name] = tensors[at]
        after, out = call.composed((tensors[0], tensors[1]))  # type: ignore[arg-type]
        pairs = zip((*after, *out), incoming[2:], strict=True)
        return [x for x, g in pairs if x is not None and g is not None]

    gradients = [g for g in incoming[2:] if g is not None]
    try:
        found = _again(function, (*total, *own), gradients)
    finally:
        for (parts, name, _), tensor in zip(slots, before, strict=True):
            parts[name] = tensor
    for at, g in enumerate(incoming[:2]):
        mine = found[at]
        found[at] = mine if g is None else g if mine is None else mine + g
    return found
