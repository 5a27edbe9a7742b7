"""Shapes of operators, even for tensors without data, whose sizes may be symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from .. import _core
from .run import saved_dtype


def fake_forward(operator: _core.Operator, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Tensors with the shapes and types of those that forward returns."""
    sizes = _bind(operator, tensors)
    first = tensors[0]
    output = first.new_empty([sizes.get(axis, axis) for axis in operator.output])
    dtype = saved_dtype(first.dtype)
    saved_len = operator.row_sums * sizes["batch"]
    if operator.kept is not None:
        kept = math.prod(sizes.get(axis, axis) for axis in operator.kept)
        # Two 16-bit elements take the place of one 32-bit element.
        share = dtype.itemsize // first.dtype.itemsize
        saved_len += kept if share == 1 else -(-kept // share)
    return output, first.new_empty([saved_len], dtype=dtype)


def fake_results(operator: _core.Operator, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors with the shapes and types of all outputs of an operator."""
    sizes = _bind(operator, tensors)
    like = {"batch" in axes: tensor for (_, axes), tensor in zip(operator.inputs, tensors)}
    return [
        like["batch" in axes].new_empty([sizes.get(axis, axis) for axis in axes])
        for _, axes in operator.outputs
    ]


def _bind(operator, tensors):
    """The sizes that ``batch``, ``in``, ``out`` and ``scalars`` stand for."""
    sizes = {}
    for (name, axes), tensor in zip(operator.inputs, tensors):
        shape = tensor.shape
        fits = len(axes) == len(shape)
        if fits:
            for axis, size in zip(axes, shape):
                wanted = sizes.setdefault(axis, size) if isinstance(axis, str) else axis
                if wanted != size:
                    fits = False
        if not fits:
            expected = ", ".join(
                f"{axis} = {sizes[axis]}" if axis in sizes else str(axis) for axis in axes
            )
            raise ValueError(
                f"{operator.name}: tensor `{name}` must be [{expected}], got {list(shape)}"
            )
    if "in" in sizes:
        sizes.setdefault("out", sizes["in"])
    return sizes
