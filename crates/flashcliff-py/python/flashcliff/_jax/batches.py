"""Batches of calls by ``jax.vmap``.

Batches of multivectors become one batch. A batch of parameters, or of sums over the batch, is a loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from .._ops.sizes import bind, shape_of
from .which import Which

Arrays = list[Any]


class Lane:
    """An array whose axis 1 is the batch."""

    @staticmethod
    def fold(array: Any, dim: int | None, size: int) -> Any:
        """A batch of such arrays as one."""
        if dim is None:
            shape = (array.shape[0], size, *array.shape[1:])
            array = jnp.broadcast_to(array[:, None], shape)
        else:
            array = jnp.moveaxis(array, dim, 1)
        return array.reshape(array.shape[0], -1, *array.shape[3:])

    @staticmethod
    def unfold(array: Any, size: int) -> tuple[Any, int]:
        """The batch of an array, and its axis."""
        return array.reshape(array.shape[0], size, -1, *array.shape[2:]), 1


@dataclass(frozen=True)
class Kept:
    """What an operator saves that keeps a tensor: the tensor, then the sums, in one row."""

    tensor: tuple[int, ...]
    sums: tuple[int, ...]

    @staticmethod
    def of(which: Which, shapes: Sequence[Sequence[int]]) -> Kept:
        """The sizes for inputs of some shapes."""
        core, sizes = which.core, bind(which.core, shapes)
        assert core.kept is not None
        return Kept(tuple(shape_of(core.kept, sizes)), (core.row_sums, sizes["batch"]))

    def fold(self, array: Any, dim: int | None, size: int) -> Any:
        """A batch of such rows as one."""
        if dim is None:
            array = jnp.broadcast_to(array, (size, *array.shape))
        else:
            array = jnp.moveaxis(array, dim, 0)
        ends = [math.prod(self.tensor)]
        parts = zip(jnp.split(array, ends, axis=1), (self.tensor, self.sums))
        rows = [part.reshape(size, *shape).swapaxes(0, 1).reshape(-1) for part, shape in parts]
        return jnp.concatenate(rows)

    def unfold(self, array: Any, size: int) -> tuple[Any, int]:
        """The batch of a row, and its axis."""
        parts = zip(jnp.split(array, [size * math.prod(self.tensor)]), (self.tensor, self.sums))
        rows = [
            part.reshape(shape[0], size, *shape[1:]).swapaxes(0, 1).reshape(size, -1)
            for part, shape in parts
        ]
        return jnp.concatenate(rows, axis=1), 0


Kind = Any
"""A kind of array, which says how it folds; ``None`` for a parameter, which does not."""


def batched(
    call: Callable[..., Arrays],
    given: Sequence[Kind],
    made: Sequence[Kind],
    arrays: Sequence[Any],
    dims: Sequence[int | None],
) -> tuple[Arrays, list[int]]:
    """The results for a batch of calls, and the axis of the batch in each.

    Args:
        call: the call.
        given: the kinds of its arguments.
        made: the kinds of its results.
        arrays: the arguments.
        dims: the axis of the batch in each; ``None`` where there is none.
    """
    size = next(array.shape[dim] for array, dim in zip(arrays, dims) if dim is not None)
    of_parameters = any(kind is None and dim is not None for kind, dim in zip(given, dims))
    if of_parameters or any(kind is None for kind in made) or size == 0:
        return _looped(call, arrays, dims)
    folded = [
        array if kind is None else kind.fold(array, dim, size)
        for kind, array, dim in zip(given, arrays, dims)
    ]
    results = zip(made, call(*folded))
    unfolded = [kind.unfold(result, size) for kind, result in results]
    return [result for result, _ in unfolded], [dim for _, dim in unfolded]


def _looped(call, arrays, dims):
    mapped = [jnp.moveaxis(a, dim, 0) for a, dim in zip(arrays, dims) if dim is not None]

    def one(some):
        of_call = iter(some)
        return call(*(a if dim is None else next(of_call) for a, dim in zip(arrays, dims)))

    results = jax.lax.map(one, mapped)
    return list(results), [0] * len(results)
