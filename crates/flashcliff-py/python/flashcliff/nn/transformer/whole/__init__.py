"""A whole block as one function of autograd on CUDA.

Composed of layers, a block is some ten functions of autograd with views between them, and the host takes longer to call them
than a GPU takes to compute them for few items. Here its forward pass and its backward pass are straight lines of the same
kernels and matrix products in the same order, between matrices that have an item in a row.

| module      | what                                                                                     |
|-------------|------------------------------------------------------------------------------------------|
| `structure` | what is fixed in a block: modules, parameters, layouts; and whether it still is the same |
| `call`      | what a call has besides; the values that its backward pass reads                         |
| `forward`   | the forward pass                                                                         |
| `backward`  | the backward pass                                                                        |

:func:`attempt` leaves a block to its layers wherever something follows or changes the calls of one of them, or a layer has no
kernel. Gradients of gradients are those of the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...._ops import items as kernels
from ...._ops.attention import Call, Rows
from ...._ops.items import Pair
from ...._ops.run import takes_tf32
from .. import kernel, packed
from ..items import _again
from ..norm import SCALAR_EPS
from ..ragged import as_sequences
from .backward import backward
from .call import Given, Kept
from .forward import forward
from .structure import Structure, structure_of

__all__ = ["attempt"]

_KNOWN = {"mask", "is_causal", "cu_seqlens", "cu_seqlens_key"}
"""The options of attention that a call may have."""

Composed = Callable[[Pair], tuple[Pair, Pair]]
"""The block of a sum by its layers."""


def attempt(
    block: Any,
    here: Pair,
    pending: Pair | None,
    factors: Callable[[Tensor], Tensor] | None,
    composed: Composed,
    options: Mapping[str, Any],
) -> tuple[Pair, Pair] | None:
    """The two pairs of :meth:`~flashcliff.nn.transformer.block.Block.chained`; ``None`` if the layers must be called.

    Args:
        block: the block.
        here: multivectors and scalars.
        pending: what is to be added to them, if anything is.
        factors: a function of multivectors: the factors of joins. ``None`` if there are no joins.
        composed: the block of the sum by its layers.
        options: those of attention.
    """
    mv, s = here
    if not packed.is_plain(mv) or mv.dim() < 3 or mv.numel() == 0:
        return None
    structure = structure_of(block)
    if not structure.serves or not structure.is_whole():
        return None
    given = _given(structure, here, pending, options)
    parameters, others = structure.parameters(), structure.others()
    if given is None or not parameters or others is None:
        return None
    if not kernels.serves(structure.algebra, mv, s, *(pending or ()), *others, parameters[0]):
        return None
    reference = None if factors is None else factors(mv)
    if given.differentiated:
        more = (None, None) if pending is None else pending
        call = _Context(given, composed, reference)
        found = _Block.apply(call, mv, s, *more, *others, *parameters)
        return (found[2], found[3]), (found[4], found[5])
    _, after, out, _ = _forward(given, here, pending, reference, others, parameters)
    return after, out


def _forward(
    given: Given,
    here: Pair,
    pending: Pair | None,
    reference: Tensor | None,
    others: Sequence[Tensor | None],
    parameters: list[Tensor],
) -> tuple[Pair, Pair, Pair, Kept]:
    log_weights, *gains = others
    elements = packed.elements_of(given.table, torch._C._nn.flatten_dense_tensors(parameters))
    of_norms = (gains[0], gains[1]), (gains[2], gains[3])
    return forward(given, here, pending, reference, log_weights, of_norms, elements)


def _given(
    structure: Structure, here: Pair, pending: Pair | None, options: Mapping[str, Any]
) -> Given | None:
    """The properties of a call; ``None`` if there are no kernels for it."""
    mv, layout = here[0], structure.hidden
    batch = tuple(mv.shape[1:-1])
    shapes = (layout.blades, *batch, layout.channels), (*batch, layout.scalars)
    for one, of_scalars in (here,) if pending is None else (here, pending):
        if one.shape != shapes[0] or (of_scalars is None) != (not layout.scalars):
            return None
        if of_scalars is not None and of_scalars.shape != shapes[1]:
            return None
    if torch.is_autocast_enabled(mv.device.type):
        return None
    features, modes = structure.features(mv), structure.modes(mv)
    if features is None or modes is None:
        return None

    elements, count = batch[:-1], batch[-1]
    shape = torch.Size(elements).numel(), count
    sequences, of_queries = shape[0], Rows(shape[0] * count, count)
    of_keys = of_queries
    if options.get("mask") is not None or options.get("is_causal"):
        return None
    if not _KNOWN.issuperset(options):
        return None
    if options.get("cu_seqlens") is not None:
        if shape[0] != 1:
            return None
        of_queries = of_keys = _ragged(options, "cu_seqlens", mv)
        sequences = of_queries.bounds.numel() - 1  # type: ignore[union-attr]
        if options.get("cu_seqlens_key") is not None:
            of_keys = _ragged(options, "cu_seqlens_key", mv)
    if not kernel.takes_longest(features.dtype, max(of_queries.longest, of_keys.longest)):
        return None
    heads, shared = structure.counts[0], structure.counts[1] == 1
    spread = shared and heads > 1 and kernel.spreads(heads, sequences, of_queries, of_keys)
    call = Call(features.scale, sequences, of_queries, of_keys, takes_tf32())
    eps = tuple([(layer.eps, SCALAR_EPS) for layer in structure.norms])
    rest = structure.table(mv), modes, features, call, shape, spread, torch.is_grad_enabled(), eps
    return Given(structure, batch, shape[0] * shape[1], *rest)


def _ragged(options: Mapping[str, Any], name: str, mv: Tensor) -> Rows:
    """The items of a ragged batch by an option."""
    items = mv.shape[-2]
    found = as_sequences(name, options[name]).check(items)
    return Rows(items, found.longest, found.on(mv.device))


class _Context:
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
    def forward(ctx: Any, call: _Context, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        mv, s, more, more_s, *rest = tensors
        others, parameters = rest[:5], rest[5:]
        pending = None if more is None else (more, more_s)
        here: Any = mv, s
        total, after, out, kept = _forward(
            call.given, here, pending, call.reference, others, parameters
        )
        ctx.call, ctx.has_pending = call, pending is not None
        call.parameters = tuple(parameters)
        call.versions = [p._version for p in parameters]
        ctx.save_for_backward(*kept.flat(), others[0])
        # An input would come back as an output of the same name.
        of_total = (None, None) if pending is None else total
        return *of_total, *after, *out

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> Any:
        saved = ctx.saved_tensors
        call, kept, log_weights = ctx.call, Kept.of(saved[:-1]), saved[-1]
        if torch.is_grad_enabled():
            found = _composed(call, kept, log_weights, incoming)
        else:
            given = call.given
            made = backward(given, kept, incoming[:2], incoming[2:4], incoming[4:])
            of_parameters = torch._C._nn.unflatten_dense_tensors(made.parameters, call.parameters)
            found = [*made.total, made.log_weights, *made.gains, *of_parameters]
        of_total = found[:2]
        of_pending = of_total if ctx.has_pending else (None, None)
        return None, *of_total, *of_pending, *found[2:]


def _composed(
    call: _Context, kept: Kept, log_weights: Tensor | None, incoming: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradients by the block's layers, with derivatives of their own."""
    call.check()
    structure = call.given.structure
    own = log_weights, *kept.gains, *call.parameters
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
