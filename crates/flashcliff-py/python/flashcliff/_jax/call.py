"""Calls of the operators of the table, on arrays of JAX with any batch axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._ops.carried import Carried
from .._ops.op import Op
from ..algebra import AlgebraLike, Grades, as_algebra
from . import primitives
from .which import Which, of_row


def call(
    op: Op, arrays: tuple[Any, ...], algebra: AlgebraLike, options: tuple[Any, ...]
) -> Array:
    """The output of an operator."""
    of = of_row(op, as_algebra(algebra).name, op.given(arrays), options)
    return outputs(op.function(options), of, op.named(arrays))[0]


def outputs(operator: str, of: Which, given: Sequence[tuple[str, Any, bool]]) -> list[Array]:
    """The outputs of an operator.

    Args:
        operator: the name of the operator, for messages.
        of: the operator; its outputs have a batch.
        given: its inputs: the name, the array, and whether it has a batch.
    """
    arrays = [_array(operator, name, array) for name, array, _ in given]
    batch = next(array.shape[1:-1] for array, (_, _, lane) in zip(arrays, given) if lane)
    flat = [
        _flat(operator, name, array, batch) if lane else array
        for array, (name, _, lane) in zip(arrays, given)
    ]
    found = primitives.operator(flat, of, takes_tf32())
    return [output.reshape(output.shape[0], *batch, output.shape[-1]) for output in found]


def _array(operator: str, name: str, value: Any) -> Array:
    if not isinstance(value, (Array, np.ndarray)):
        raise TypeError(f"{operator}: `{name}` must be an array of JAX, got {type(value).__name__}")
    return jnp.asarray(value)


def _flat(operator: str, name: str, array: Array, batch: tuple[int, ...]) -> Array:
    """One batch axis."""
    if array.ndim < 2 or array.shape[1:-1] != batch:
        expected = ", ".join(("blades", *map(str, batch), "channels"))
        raise ValueError(f"{operator}: tensor `{name}` must be [{expected}], got {list(array.shape)}")
    if array.ndim == 3:
        return array
    return array.reshape(array.shape[0], math.prod(batch), array.shape[-1])


def takes_tf32() -> bool:
    """Whether matrix products of float32 on CUDA may round to TF32: where a user says so."""
    config: Any = jax.config
    return config.jax_default_matmul_precision in ("default", "fastest", "tensorfloat32", "bfloat16")


def unary(op: Op, x: Any, algebra: AlgebraLike, grades: Grades) -> Array:
    """An involution or a dual; of some grades by way of all."""
    if grades is None:
        return call(op, (x,), algebra, ())
    algebra = as_algebra(algebra)
    x = _array(op.name, "x", x)
    carried = Carried.of(op, algebra, grades, x.shape)
    places = jnp.asarray(algebra.blades_of(carried.given))
    whole = jnp.zeros((len(algebra.blades), *x.shape[1:]), x.dtype).at[places].set(x)
    return call(op, (whole,), algebra, ())[jnp.asarray(algebra.blades_of(carried.reached))]
