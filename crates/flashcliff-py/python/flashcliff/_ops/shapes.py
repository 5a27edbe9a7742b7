"""Shapes of operators, even for tensors without data, whose sizes may be symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from .. import _core
from .run import saved_dtype
from .sizes import bind, shape_of


def fake_forward(operator: _core.Operator, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Tensors with the shapes and types of those that forward returns."""
    sizes = bind(operator, [tensor.shape for tensor in tensors])
    first = tensors[0]
    output = first.new_empty(shape_of(operator.output, sizes))
    dtype = saved_dtype(first.dtype)
    saved_len = operator.row_sums * sizes["batch"]
    if operator.kept is not None:
        kept = math.prod(shape_of(operator.kept, sizes))
        # Two 16-bit elements take the place of one 32-bit element.
        share = dtype.itemsize // first.dtype.itemsize
        saved_len += kept if share == 1 else -(-kept // share)
    return output, first.new_empty([saved_len], dtype=dtype)


def fake_results(operator: _core.Operator, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors with the shapes and types of all outputs of an operator."""
    sizes = bind(operator, [tensor.shape for tensor in tensors])
    like = {"batch" in axes: tensor for (_, axes), tensor in zip(operator.inputs, tensors)}
    return [
        like["batch" in axes].new_empty(shape_of(axes, sizes))
        for _, axes in operator.outputs
    ]
