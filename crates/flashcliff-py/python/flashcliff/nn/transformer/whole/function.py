"""A block as a function of autograd. Gradients of gradients are those of its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...._ops.items import Pair
from .. import packed
from ..items import _again
from .backward import backward
from .call import Given, Kept
from .forward import forward

__all__ = ["Composed", "Context", "differentiated", "packed_forward"]

Composed = Callable[[Pair], tuple[Pair, Pair]]
"""The block of a sum by its layers."""


def differentiated(
    call: Context,
    here: Pair,
    pending: Pair | None,
    others: Sequence[Tensor | None],
    parameters: list[Tensor],
) -> tuple[Pair, Pair]:
    """The block of a sum. ``others`` and ``parameters`` are those of :class:`~.structure.Structure`."""
    more = (None, None) if pending is None else pending
    found = _Block.apply(call, *here, *more, *others, *parameters)
    return (found[2], found[3]), (found[4], found[5])


def packed_forward(
    given: Given,
    here: Pair,
    pending: Pair | None,
    reference: Tensor | None,
    others: Sequence[Tensor | None],
    parameters: list[Tensor],
) -> tuple[Pair, Pair, Pair, Kept | None]:
    """:func:`~.forward.forward` with parameters that are packed first."""
    log_weights, *gains = others
    elements = packed.elements_from(given.table, parameters)
    of_norms = (gains[0], gains[1]), (gains[2], gains[3])
    return forward(given, here, pending, reference, log_weights, of_norms, elements)


class Context:
    """What a call keeps besides tensors that autograd saves."""

    def __init__(self, given: Given, composed: Composed, reference: Tensor | None) -> None:
        self.given, self.composed, self.reference = given, composed, reference
        self.parameters: tuple[Tensor, ...] = ()
        self.versions: list[int] = []

    def check(self) -> None:
        """Raises if a parameter was changed in place since the call."""
        if [p._version for p in self.parameters] != self.versions:
            raise RuntimeError(
                "a parameter of a transformer block has been modified by an inplace operation before a backward pass with "
                "create_graph=True; call backward first, and then change parameters"
            )


class _Block(torch.autograd.Function):
    """The sum, and two pairs whose sum is the block's output. Callers need no sum; gradients of gradients go by it."""

    @staticmethod
    def forward(ctx: Any, call: Context, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        mv, s, more, more_s, *rest = tensors
        others, parameters = rest[:5], rest[5:]
        pending = None if more is None else (more, more_s)
        here: Any = mv, s
        total, after, out, kept = packed_forward(
            call.given, here, pending, call.reference, others, parameters
        )
        assert kept is not None
        ctx.call, ctx.has_pending = call, pending is not None
        call.parameters = tuple(parameters)
        call.versions = [p._version for p in parameters]
        ctx.save_for_backward(*kept.flat())
        # An input would come back as an output of the same name.
        of_total = (None, None) if pending is None else total
        return *of_total, *after, *out

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> Any:
        call, kept = ctx.call, Kept.of(ctx.saved_tensors)
        if torch.is_grad_enabled():
            found = _composed(call, kept, incoming)
        else:
            given = call.given
            made = backward(given, kept, incoming[:2], incoming[2:4], incoming[4:])
            of_parameters = torch._C._nn.unflatten_dense_tensors(made.parameters, call.parameters)
            found = [*made.total, made.log_weights, *made.gains, *of_parameters]
        of_total = found[:2]
        of_pending = of_total if ctx.has_pending else (None, None)
        return None, *of_total, *of_pending, *found[2:]


def _composed(
    call: Context, kept: Kept, incoming: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradients by the block's layers, with derivatives of their own."""
    call.check()
    structure = call.given.structure
    own = kept.log_weights, *kept.gains, *call.parameters
    slots = [
        (parts, name, tensor)
        for (parts, name), tensor in zip(
            (*structure.other_slots, *structure.slots), own, strict=True
        )
        if parts is not None and tensor is not None
    ]
    before = [parts[name] for parts, name, _ in slots]

    def function(*tensors: Tensor | None) -> list[Tensor]:
        after, out = call.composed((tensors[0], tensors[1]))  # type: ignore[arg-type]
        pairs = zip((*after, *out), incoming[2:], strict=True)
        return [x for x, g in pairs if x is not None and g is not None]

    gradients = [g for g in incoming[2:] if g is not None]
    try:
        # Others may stand where the parameters of the call stood, such as those of `torch.func.functional_call`.
        for parts, name, tensor in slots:
            parts[name] = tensor
        found = _again(function, (*kept.norms[:2], *own), gradients)
    finally:
        for (parts, name, _), tensor in zip(slots, before, strict=True):
            parts[name] = tensor
    for at, g in enumerate(incoming[:2]):
        mine = found[at]
        found[at] = mine if g is None else g if mine is None else mine + g
    return found
