"""Calls of operators on tensors of PyTorch with any batch axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..algebra import Algebra, AlgebraLike, Grades, as_algebra
from . import remedies, run, surprises
from .carried import Carried
from .eager import call as call_flat
from .op import Op


def call(
    op: Op, tensors: tuple[Any, ...], algebra: AlgebraLike, options: tuple[Any, ...]
) -> Tensor:
    """Runs an operator over any batch axes."""
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor) and (tensor is not None or not op.optional[index]):
            raise TypeError(
                f"{op.function(options)}: `{op.names[index]}` must be a torch.Tensor, got "
                f"{type(tensor).__name__}{remedies.of_value(op.names[index], tensor)}"
            )
    name = algebra.name if type(algebra) is Algebra else as_algebra(algebra).name
    if tensors[0].dim() == 3:
        return call_flat(op, tensors, name, options)
    function = op.function(options)
    run.refuse_layouts(function, op.names, tensors)
    batch = tensors[0].shape[1:-1]
    flat = tuple(
        flattened(function, op.names[index], tensor, batch)
        if op.lanes[index] and tensor is not None
        else tensor
        for index, tensor in enumerate(tensors)
    )
    output = call_flat(op, flat, name, options)
    return output.reshape(output.shape[0], *batch, output.shape[-1])


def warn_of_gates(
    operator: str, gate: str, left: tuple[int, ...] | None, right: tuple[int, ...] | None
) -> None:
    if (left is not None or right is not None) and not torch.compiler.is_compiling():
        surprises.gates_without_scalars(operator, gate, left, right)


def flattened(function: str, name: str, tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """A tensor with one batch axis."""
    if tensor.dim() < 2 or tensor.shape[1:-1] != batch:
        expected = ", ".join(("blades", *map(str, batch), "channels"))
        raise ValueError(
            f"{function}: tensor `{name}` must be [{expected}], got {list(tensor.shape)}"
        )
    return tensor.unsqueeze(1) if tensor.dim() == 2 else tensor.flatten(1, -2)


def unary(op: Op, x: Tensor, algebra: AlgebraLike, grades: Grades) -> Tensor:
    """An involution or a dual; of some grades by way of all."""
    if grades is None:
        return call(op, (x,), algebra, ())
    if not isinstance(x, Tensor):
        raise TypeError(f"{op.name}: `x` must be a torch.Tensor, got {type(x).__name__}")
    carried, reached, sizes = Carried.of(op, algebra, grades, x.shape)
    # Without an index, which would be copied from the host.
    given = iter(x.split([sizes[grade] for grade in carried]))
    parts = [
        next(given) if grade in carried else x.new_zeros((size, *x.shape[1:]))
        for grade, size in enumerate(sizes)
    ]
    output = call(op, (torch.cat(parts),), algebra, ()).split(sizes)
    return torch.cat([output[grade] for grade in reached])
