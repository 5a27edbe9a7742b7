"""Calls the kernels of products with block-sparse matrices, with float32 tensors on CUDA.

Matrices are ``[rows, columns]`` with a contiguous last axis. Columns are counted in units of 8.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from . import doors, items

__all__ = ["Blocks", "Groups", "blocks_of", "product", "serves", "takes", "weights"]


class Groups(NamedTuple):
    """Groups of output units that depend on the same input units."""

    groups: Tensor
    """``[count, 5]``: of each group the first of its inputs in ``units``, their number, the first of its outputs, their
    number, and 1 for the first group with these outputs, else 0."""
    sizes: Tensor
    """``groups`` on the CPU."""
    units: Tensor
    """Numbers of units."""
    entries: int
    """The elements of the blocks."""


class Blocks(NamedTuple):
    """The blocks of a matrix ``[inputs, outputs]`` that are not zero."""

    forward: Groups
    """Groups of outputs."""
    backward: Groups
    """Groups of inputs, which depend on outputs in the backward pass."""
    weights: Groups
    """Groups of few inputs and outputs, for the gradient of the matrix."""


def takes(*sizes: int) -> bool:
    """Whether there are kernels for so many columns each: whole units."""
    return _core.CUDA and all(size % _core.BlockSparse.UNIT == 0 for size in sizes)


def blocks_of(filled: Tensor, device: torch.device) -> Blocks | None:
    """The blocks of a matrix of booleans that are not all false, on a device; ``None`` if its sides are not whole units."""
    if not takes(*filled.shape) or not filled.numel():
        return None
    unit = _core.BlockSparse.UNIT
    rows, columns = (size // unit for size in filled.shape)
    units = filled.view(rows, unit, columns, unit).any(3).any(1)
    forward, backward = _alike(units), _alike(units.t())
    most = _core.BlockSparse.GROUP_INPUTS
    few = [
        (piece, outputs) for inputs, outputs in forward for piece in _pieces(inputs, most) or [inputs]
    ]
    return Blocks(*(_groups(found, device) for found in (forward, backward, few)))


def _alike(units: Tensor) -> list[tuple[list[int], list[int]]]:
    """The columns with the same rows, and these rows, in pieces of the size of a group."""
    found: dict[tuple[int, ...], list[int]] = {}
    for column in range(units.shape[1]):
        inputs = tuple(units[:, column].nonzero().view(-1).tolist())
        found.setdefault(inputs, []).append(column)
    most = _core.BlockSparse.GROUP_UNITS
    # What takes longest begins first. The order of all else is that of the columns.
    return [
        (list(inputs), piece)
        for inputs, outputs in sorted(found.items(), key=lambda pair: -len(pair[0]))
        for piece in _pieces(outputs, most)
    ]


def _pieces(units: list[int], most: int) -> list[list[int]]:
    """Nearly equal pieces of at most so many units, an even number; pairs are not divided."""
    pairs = -(-len(units) // 2)
    count = -(-pairs // (most // 2))
    bounds = [2 * (pairs * at // count) for at in range(count + 1)] if count else [0]
    return [units[start:end] for start, end in zip(bounds, bounds[1:])]


def _groups(found: list[tuple[list[int], list[int]]], device: torch.device) -> Groups:
    units: list[int] = []
    groups: list[int] = []
    known: set[tuple[int, ...]] = set()
    for inputs, outputs in found:
        for part in (inputs, outputs):
            groups += [len(units), len(part)]
            units += part
        groups.append(tuple(outputs) not in known)
        known.add(tuple(outputs))
    sizes = torch.tensor(groups, dtype=torch.int32).view(-1, _core.BlockSparse.GROUP_NUMBERS)
    of_units = torch.tensor(units, dtype=torch.int32, device=device)
    pairs = sum(len(inputs) * len(outputs) for inputs, outputs in found)
    return Groups(sizes.to(device), sizes, of_units, pairs * _core.BlockSparse.UNIT**2)


def serves(x: Tensor, *others: Tensor) -> bool:
    """Whether the kernels can read and write matrices of these types, places and strides."""
    if not x.is_cuda or not doors.opens(x, *others):
        return False
    return doors.hold((x, *others)) and all(
        t.dtype == torch.float32
        and t.device == x.device
        and t.data_ptr() % 16 == 0
        and (t.dim() == 1 or (t.stride(1) == 1 and t.stride(0) % 4 == 0))
        for t in (x, *others)
    )


def product(
    x: Tensor, matrix: Tensor, bias: Tensor | None, groups: Groups, transposed: bool = False
) -> Tensor:
    """``bias + x @ matrix``, or ``x @ matrix.t()`` for a matrix that is transposed."""
    out = x.new_empty(x.shape[0], matrix.shape[0 if transposed else 1])
    tensors = [_place(t) for t in (x, matrix, out)]
    place = 0 if bias is None else bias.data_ptr()
    given = tensors, place, x.shape[0], transposed, _described(groups)
    items.launch(x, lambda target: _kernels().product(*given, target))
    return out


def weights(
    x: Tensor, gradient: Tensor, groups: Groups, to: Tensor, of_bias: Tensor | None = None
) -> None:
    """Writes ``x.t() @ gradient``, of the blocks of groups, to a matrix that keeps its other elements, and the sums of all
    rows of the gradient to that of a bias, if there is one."""
    partials = x.new_empty(_kernels().partials(x.shape[0], len(groups.groups)))
    tensors = [_place(t) for t in (x, gradient, to)]
    bias = 0 if of_bias is None else of_bias.data_ptr()
    given = tensors, partials.data_ptr(), bias, x.shape[0], _described(groups)
    items.launch(x, lambda target: _kernels().weights(*given, target))


@functools.cache
def _kernels() -> _core.BlockSparse:
    return _core.BlockSparse()


def _place(x: Tensor) -> tuple[int, int]:
    return x.data_ptr(), x.stride(0)


def _described(groups: Groups) -> tuple[int, int, int, int]:
    described = groups.groups.data_ptr(), groups.sizes.data_ptr(), groups.units.data_ptr()
    return *described, len(groups.groups)
