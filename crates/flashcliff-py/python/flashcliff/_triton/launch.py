"""Calls of operators by Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._ops import doors
from .._ops.shapes import fake_forward
from .._ops.sizes import bind, shape_of
from ..errors import UnsupportedError
from . import tiles
from .sources import kernels

__all__ = ["backward", "forward", "results"]

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_WIDTHS = ("in", "scalars")
"""The axis of the channels, by the number of their width."""


_FAR = 1 << 30
"""Elements of a tensor up to which places in it are numbers of 32 bits, those beside a tile included."""


def forward(
    operator: _core.Operator, tensors: Sequence[Tensor], keep: bool
) -> tuple[Tensor, Tensor | None]:
    """The output, and memory of the size that the kernels of the extension save. Backward passes read none of it: they sum again."""
    output = results(operator, tensors)[0]
    return output, fake_forward(operator, tensors)[1] if keep else None


def backward(
    operator: _core.Operator, tensors: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of the inputs that are wanted: the gradient is an operator."""
    found = iter(results(_gradient(operator, tuple(wanted)), [*tensors, grad]))
    return [next(found) if want else None for want in wanted]


@lru_cache(maxsize=1024)
def _gradient(operator: _core.Operator, wanted: tuple[bool, ...]) -> _core.Operator:
    return operator.gradient().selecting(list(wanted))


def results(operator: _core.Operator, tensors: Sequence[Tensor]) -> list[Tensor]:
    """All outputs of an operator."""
    kinds = ["batch" in axes for _, axes in operator.inputs]
    _check(operator, tensors, kinds)
    sizes = bind(operator, [tensor.shape for tensor in tensors])
    like = dict(zip(kinds, tensors))
    outputs = [
        like["batch" in axes].new_empty(shape_of(axes, sizes)) for _, axes in operator.outputs
    ]
    of_operator = kernels(operator)
    if of_operator is None or 0 in (tensor.numel() for tensor in tensors):
        return [output.zero_() for output in outputs]
    given = [_resolved(operator, name, tensor) for (name, _), tensor in zip(operator.inputs, tensors)]
    first = like[True]
    if first.is_cpu:
        return _launched(operator, of_operator, given, outputs, sizes)
    with torch.get_device_module(first.device).device(first.device):
        return _launched(operator, of_operator, given, outputs, sizes)


def _check(operator, tensors, kinds):
    """Raises for types that these kernels do not have."""
    first = {}
    for (name, _), tensor, kind in zip(operator.inputs, tensors, kinds):
        if tensor.dtype not in _TYPES:
            raise UnsupportedError(
                f"{operator.name}: tensor `{name}` must be float32, bfloat16 or float16 for Triton kernels, which compute in float32, got "
                f"{tensor.dtype}; move it to the CPU, which has float64, or call its `float()`"
            )
        dtype, device = first.setdefault(kind, (tensor.dtype, tensor.device))
        if tensor.dtype is not dtype:
            raise TypeError(
                f"{operator.name}: tensor `{name}` must be {dtype}, as others of its kind, got {tensor.dtype}; call `{name}.to({dtype})`"
            )


def _resolved(operator, name, tensor):
    """The tensor in the order of its memory."""
    if not doors.has_memory(tensor):
        doors.refuse(operator.name, (tensor,), (name,))
    return tensor.contiguous().resolve_neg()


def _launched(operator, of_operator, given, outputs, sizes):
    counts = [sizes.get(axis) or 0 for axis in _WIDTHS]
    rows = sizes["batch"]
    loads, has_sums = _loads(operator, *counts)
    tile = tiles.tile_of(tiles.of_tensor(given[0]), loads, rows, has_sums, given[0].element_size())
    places, parts = [], []
    for (_, axes), output in zip(operator.outputs, outputs):
        if "batch" in axes:
            places.append(output if len(axes) == 3 else output.zero_())
        else:
            places.append(output.new_empty((tile.instances, axes[1], output.shape[0]), dtype=torch.float32))
            parts.append((places[-1], output))
    numbers = None
    if not tile.is_whole and of_operator.numbers:
        numbers = given[0].new_empty((rows, of_operator.numbers), dtype=torch.float32)
    constants = {
        "COUNT0": max(counts[0], 1),
        "COUNT1": max(counts[1], 1),
        "BLOCK0": tile.blocks[0],
        "BLOCK1": tile.blocks[1],
        "ROWS": tile.rows,
        "WIDE": max(tensor.numel() for tensor in (*given, *outputs)) > _FAR,
        "STAGES": tile.stages,
        "num_warps": tile.warps,
    }
    arguments = (*given, *places, numbers, rows)
    if tile.is_whole:
        of_operator.function("whole")[(tile.instances,)](*arguments, **constants)
    else:
        for name, width, is_of_block in of_operator.split:
            blocks = -(-counts[width] // tile.blocks[width]) if is_of_block else 1
            of_operator.function(name)[(tile.instances, blocks)](*arguments, **constants)
        _add_totals(operator, of_operator, numbers, outputs)
    for part, output in parts:
        _add(part, output)
    return outputs


@lru_cache(maxsize=1024)
def _loads(operator: _core.Operator, *counts: int) -> tuple[tuple[tiles.Load, ...], bool]:
    """What rows have, of each width, and whether there are sums over the batch."""

    def components(tensors, axis, has_batch):
        of_width = [axes for _, axes in tensors if axis in axes and ("batch" in axes) is has_batch]
        return sum(size for axes in of_width for size in axes if isinstance(size, int))

    sums = any("batch" not in axes for _, axes in operator.outputs)
    loads = [
        tiles.Load(
            channels=count,
            read=components(operator.inputs, axis, True),
            held=components(operator.inputs, axis, False) + components(operator.outputs, axis, False),
            written=components(operator.outputs, axis, True),
        )
        for axis, count in zip(_WIDTHS, counts)
    ]
    return tuple(loads), sums


def _add_totals(operator, of_operator, numbers, outputs):
    """Totals of rows, from numbers of rows."""
    of_rows = [output for (_, axes), output in zip(operator.outputs, outputs) if axes == ("batch",)]
    for output, own in zip(of_rows, of_operator.totals):
        if own:
            output.copy_(numbers[:, own].sum(1))


def _add(part: Tensor, output: Tensor) -> None:
    """Adds the parts of a sum over the batch."""
    from . import functions

    instances, count, channels = part.shape
    block = 64
    grid: Any = (-(-count * channels // block),)
    functions.add_parts[grid](part, output, instances, COUNT=count, CHANNELS=channels, PARTS=32, BLOCK=block, num_warps=4)
