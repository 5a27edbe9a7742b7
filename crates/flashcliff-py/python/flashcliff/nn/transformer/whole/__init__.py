"""A whole block as one function of autograd on CUDA.

Composed of layers, a block is some ten functions of autograd with views between them, and the host takes longer to call them
than a GPU takes to compute them for few items. Here its forward pass and its backward pass are straight lines of the same
kernels and matrix products in the same order, between matrices that have an item in a row.

| module      | what                                                                                     |
|-------------|------------------------------------------------------------------------------------------|
| `choice`    | whether a block runs as one function, and why not                                        |
| `structure` | what is fixed in a block: parameters, layouts                                            |
| `call`      | what a call has besides; the values that its backward pass reads                         |
| `forward`   | the forward pass                                                                         |
| `backward`  | the backward pass                                                                        |
| `listed`    | both passes as lists of calls, which the extension makes at once                         |
| `function`  | both as a function of autograd, and gradients of gradients                               |

:func:`attempt` leaves a block to its layers wherever something follows or changes the calls of one of them, or a layer has no
kernel. Gradients of gradients are those of the layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...._ops.items import Pair
from ..bilinear import JoinFactors
from .choice import Extra, choose
from .function import Composed, Context, differentiated, without_gradients

if TYPE_CHECKING:
    from ..block import Block

__all__ = ["attempt"]


def attempt(
    block: Block,
    here: Pair,
    pending: Pair | None,
    extra: Extra,
    joins: JoinFactors | None,
    composed: Composed,
    options: Mapping[str, Any],
) -> tuple[Pair, Pair] | None:
    """The two pairs of :meth:`~flashcliff.nn.transformer.block.Block.chained`; ``None`` if the layers must be called.

    ``composed`` is the block of the sum by its layers; the other arguments are those of :func:`.choice.choose`.
    """
    found = choose(block, here, pending, extra, joins, options)
    if isinstance(found, str):
        return None
    given, taken = found
    if given.differentiated:
        return differentiated(Context(given, composed, taken.reference), taken)
    return without_gradients(given, taken)
