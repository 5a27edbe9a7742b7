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
| `listed`    | both passes as lists of calls, which the extension makes at once                         |
| `function`  | both as a function of autograd, and gradients of gradients                               |

:func:`attempt` leaves a block to its layers wherever something follows or changes the calls of one of them, or a layer has no
kernel. Gradients of gradients are those of the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...._ops import items as kernels
from ...._ops.attention import Call, Rows
from ...._ops.items import Pair
from ...._ops.run import takes_tf32
from .. import kernel, packed
from ..norm import SCALAR_EPS
from ..ragged import paired
from .call import Given, Others
from .function import Composed, Context, differentiated, without_gradients
from .listed import Taken
from .structure import Structure, known

__all__ = ["attempt"]

_KNOWN = {"mask", "is_causal", "cu_seqlens", "cu_seqlens_key"}
"""The options of attention that a call may have."""


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
        factors: a function of multivectors: the factors of joins ``[blades, rows]``. ``None`` if there are no joins.
        composed: the block of the sum by its layers.
        options: those of attention.
    """
    mv = here[0]
    if not packed.is_plain(mv) or mv.dim() < 3 or mv.numel() == 0:
        return None
    structure, why = known(block)
    ready = why or _ready(structure, here, pending, factors, options)
    if isinstance(ready, str):
        structure.last = ready
        return None
    structure.last = None
    given, taken = ready
    if given.differentiated:
        return differentiated(Context(given, composed, taken.reference), taken)
    return without_gradients(given, taken)


def _ready(
    structure: Structure,
    here: Pair,
    pending: Pair | None,
    factors: Callable[[Tensor], Tensor] | None,
    options: Mapping[str, Any],
) -> tuple[Given, Taken] | str:
    """The properties of a call and its tensors; the reason why layers must be called if there are no kernels for it."""
    mv, s = here
    given = _given(structure, here, pending, options)
    if isinstance(given, str):
        return given
    parameters, others = structure.parameters(mv.dtype), structure.others()
    if not parameters or others is None:
        return "some parameters are not plain tensors of the type of the input and of the shapes that they were made with"
    if not kernels.serves(structure.algebra, mv, s, *(pending or ()), *others, parameters[0]):
        return "there are no kernels for tensors of this algebra, type or device"
    if others[0] is not None and not others[0].is_contiguous():
        return "the weights of distances are not contiguous"
    reference = None if factors is None else factors(mv)
    log_weights, *gains = others
    own = Others(log_weights, ((gains[0], gains[1]), (gains[2], gains[3])))
    return given, Taken(here, pending, reference, own, parameters)


def _given(
    structure: Structure, here: Pair, pending: Pair | None, options: Mapping[str, Any]
) -> Given | str:
    """The properties of a call; the reason why layers must be called if there are no kernels for it."""
    mv, layout = here[0], structure.hidden
    batch = tuple(mv.shape[1:-1])
    shapes = (layout.blades, *batch, layout.channels), (*batch, layout.scalars)
    for one, of_scalars in (here,) if pending is None else (here, pending):
        if one.shape != shapes[0] or (of_scalars is None) != (not layout.scalars):
            return "the input has another shape than the block"
        if of_scalars is not None and of_scalars.shape != shapes[1]:
            return "the scalars have another shape than the block"
    if torch.is_autocast_enabled(mv.device.type):
        return "autocast is on"
    features, modes = structure.features(mv), structure.modes(mv)
    if features is None:
        return "there are no kernels for the features of attention"
    if modes is None:
        return "a linear layer is not a dense or block-sparse product"

    elements, count = batch[:-1], batch[-1]
    shape = torch.Size(elements).numel(), count
    sequences, of_queries = shape[0], Rows(shape[0] * count, count)
    of_keys = of_queries
    if options.get("mask") is not None or options.get("is_causal"):
        return "attention has a mask"
    if not _KNOWN.issuperset(options):
        return "attention has other options than a mask and boundaries"
    ragged = paired(options.get("cu_seqlens"), options.get("cu_seqlens_key"), count, count)
    if ragged is not None:
        if shape[0] != 1:
            return "a ragged batch has more than one batch element"
        of_queries, of_keys = (Rows(count, of.longest, of.on(mv.device)) for of in ragged)
        sequences = len(ragged[0].bounds) - 1
    if not kernel.takes_longest(features.dtype, max(of_queries.longest, of_keys.longest)):
        return "sequences are too long for the kernel of attention"
    heads, shared = structure.counts[0], structure.counts[1] == 1
    spread = shared and heads > 1 and kernel.spreads(heads, sequences, of_queries, of_keys)
    call = Call(features.scale, sequences, of_queries, of_keys, takes_tf32())
    eps = tuple([(layer.eps, SCALAR_EPS) for layer in structure.norms])
    rest = structure.table(mv), modes, features, call, shape, spread, torch.is_grad_enabled(), eps
    activations = tuple([(x.activation, x.scalar_activation) for x in structure.gates])
    return Given(structure, batch, shape[0] * shape[1], *rest, activations)
