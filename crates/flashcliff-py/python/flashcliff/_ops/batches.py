"""Batches of gradients that ``torch.autograd`` asks for at once, by ``is_grads_batched`` and ``vectorize``.

Their tensors are an older kind than the tensors of ``torch.func.vmap``, and few operations know them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Gradients = list[Tensor | None]

_DEEPEST = 8
"""The deepest nesting of batches that is looked for."""


def over(function: Callable[..., Any], grads: Sequence[Tensor | None]) -> Gradients:
    """The results of a function of gradients, which may be batches.

    Args:
        function: from the gradients to results, of which some may be ``None``.
        grads: the gradients.
    """
    # Compiled autograd traces backward passes, and cannot trace questions about batches; it has none.
    if torch.compiler.is_compiling():
        return list(function(grads))
    level = next((_level(grad) for grad in grads if grad is not None and is_batch(grad)), 0)
    if not level:
        return list(function(grads))
    plain = [_without(grad, level) for grad in grads]
    axes = tuple(0 if one is not two else None for one, two in zip(plain, grads))
    there: list[bool] = []

    def some(*given: Tensor | None) -> tuple[Tensor, ...]:
        results = function(given)
        there[:] = [result is not None for result in results]
        return tuple(result for result in results if result is not None)

    # PyTorch gives tangents another order in memory only where batches come first in it.
    found = (each.contiguous() for each in torch.func.vmap(some, axes)(*plain))
    return [torch._add_batch_dim(next(found), 0, level) if is_there else None for is_there in there]


def each(
    size: int, dims: Sequence[int | None], tensors: Sequence[Tensor], function: Callable[..., Tensor]
) -> tuple[Tensor, int]:
    """The results of a batch of calls by a loop, one after another along axis 0, and that axis.

    Args:
        size: the number of calls.
        dims: the axis of the batch in each tensor, ``None`` where all calls have the same tensor.
        tensors: the tensors.
        function: from the tensors of a call to its result.
    """
    calls = []
    for at in range(size):
        given = (t if d is None else t.select(d, at) for t, d in zip(tensors, dims))
        calls.append(function(*given))
    return torch.stack(calls), 0


is_batch: Callable[[Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor
"""Whether a tensor is such a batch."""


def _level(grad: Tensor) -> int:
    """The nesting of a batch, which no thread but the one that made it could ask for; 0 if it is a batch of batches."""
    levels = range(1, _DEEPEST + 1)
    return next((level for level in levels if not is_batch(_taken(grad, level))), 0)


def _taken(grad, level):
    # A size is read where a tensor has no batch of the level.
    return torch._remove_batch_dim(grad, level, 1, 0)


def _without(grad, level):
    return _taken(grad, level) if grad is not None and is_batch(grad) else grad
