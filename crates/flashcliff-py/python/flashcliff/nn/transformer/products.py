"""Matrix products of packed linear layers on CUDA: rows times a matrix of which most blocks are zeros.

A product is dense, by PyTorch, or leaves out the zeros, by :mod:`~flashcliff._ops.block_sparse`, whichever is faster for so
many rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import _core
from ..._ops import asked, block_sparse, doors, items, run
from ..._ops.block_sparse import Blocks
from ..._ops.equivariant import Sizes
from ...algebra import Algebra
from .geometry import Geometry
from .unchanged import Unchanged

__all__ = ["Layer", "Matrix", "Mode", "biased_columns", "is_sparse", "linear", "mode_of", "multiply", "of_matrix", "of_rows"]

# Up to this many rows, kernels that leave out blocks of zeros wait for memory less often than dense products. For more they take less
# time where no more than one in so many elements of a matrix is not zero; some a little more, for up to 2048 rows, but a block
# whose products are all block-sparse takes the host half of the time.
_FEW_ROWS, _ELEMENTS = 512, 3
# From this many elements on, sums over all columns take longer than two kernels for the columns with biases.
_MANY = 1 << 20


class Layer(NamedTuple):
    """The properties that a layer's part of the matrix depends on."""

    geometry: Geometry
    sizes: Sizes
    biased: tuple[int, ...]
    """The blades that have a bias."""
    has_scalar_bias: bool

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return len(self.geometry.norms) * self.sizes.inputs + self.sizes.in_scalars

    @property
    def width(self) -> int:
        """Columns of the matrix."""
        return len(self.geometry.norms) * self.sizes.outputs + self.sizes.out_scalars


class Matrix(NamedTuple):
    """The parameters of layers that share their input."""

    weight: Tensor
    """``[inputs, outputs]``"""
    bias: Tensor | None
    """``[outputs]``"""
    blocks: Blocks | None
    """The blocks of the weight that are not zero, for kernels that read no others."""
    unchanged: Unchanged | None = None
    """The parameters, if autograd follows what becomes of them."""


class Mode(NamedTuple):
    """Which products leave out blocks of zeros."""

    rows: bool
    """Those that make rows: outputs, and gradients of inputs."""
    matrix: bool
    """Those that make the gradient of a matrix."""


_DENSE = Mode(False, False)


def mode_of(layers: Sequence[Layer], blocks: Blocks | None, x: Tensor, rows: int) -> Mode:
    """The products of layers for so many rows of the type of a tensor."""
    if blocks is None or not _in_tf32(x):
        return _DENSE
    return Mode(is_sparse(layers, x, rows), True)


def is_sparse(layers: Sequence[Layer], x: Tensor, rows: int) -> bool:
    """Whether the outputs of layers are made by kernels that leave out blocks of zeros."""
    if not _in_tf32(x) or not _are_whole_units(tuple(layers)):
        return False
    return rows <= _FEW_ROWS or _have_zeros(tuple(layers))


def _in_tf32(x: Tensor) -> bool:
    """Whether products of a tensor may be rounded to TF32, as those of block-sparse matrices are."""
    return x.dtype == torch.float32 and run.takes_tf32()


@functools.lru_cache(maxsize=1024)
def _are_whole_units(layers: tuple[Layer, ...]) -> bool:
    """Whether the sides of the matrix are whole units of block-sparse matrices."""
    return block_sparse.takes(layers[0].rows, sum(layer.width for layer in layers))


@functools.lru_cache(maxsize=1024)
def _have_zeros(layers: tuple[Layer, ...]) -> bool:
    """Whether most blocks of the matrix are zero."""

    def most(channels: int) -> int:
        """The columns of the units that have some channels, at most."""
        return channels if block_sparse.takes(channels) else channels + _core.BlockSparse.UNIT

    filled = 0
    for layer in layers:
        inputs, outputs, in_scalars, out_scalars = layer.sizes
        mixed = len(layer.geometry.scalar_blades)
        filled += sum(layer.geometry.plan.sizes) * most(inputs) * most(outputs)
        filled += mixed * (in_scalars * most(outputs) + most(inputs) * out_scalars)
        filled += in_scalars * out_scalars
    return _ELEMENTS * filled <= layers[0].rows * sum(layer.width for layer in layers)


@functools.lru_cache(maxsize=1024)
def biased_columns(layers: tuple[Layer, ...]) -> tuple[tuple[int, int], ...]:
    """The runs of columns that have biases."""
    columns: list[int] = []
    start = 0
    for layer in layers:
        of_blades = len(layer.geometry.norms) * layer.sizes.outputs
        for blade in layer.biased:
            first = start + blade * layer.sizes.outputs
            columns += range(first, first + layer.sizes.outputs)
        if layer.has_scalar_bias:
            columns += range(start + of_blades, start + layer.width)
        start += layer.width
    begins = [at for at in columns if at - 1 not in columns]
    ends = [at + 1 for at in columns if at + 1 not in columns]
    return tuple(zip(sorted(begins), sorted(ends), strict=True))


def _served(mode: Mode, x: Tensor, *others: Tensor) -> Mode:
    """The mode, if the kernels can read some tensors."""
    return mode if not any(mode) or block_sparse.serves(x, *others) else _DENSE


def multiply(mode: Mode, rows: Tensor, matrix: Matrix) -> Tensor:
    """``bias + rows @ weight``; not for autograd. A mode that is not dense needs matrices that the kernels serve."""
    weight, bias, blocks, _ = matrix
    if mode.rows:
        assert blocks is not None
        return block_sparse.product(rows, weight, bias, blocks.forward)
    return torch.mm(rows, weight) if bias is None else torch.addmm(bias, rows, weight)


def of_rows(mode: Mode, g: Tensor, matrix: Matrix) -> Tensor:
    """The gradient of rows from that of outputs; not for autograd."""
    if mode.rows:
        assert matrix.blocks is not None
        return block_sparse.product(g, matrix.weight, None, matrix.blocks.backward, True)
    return torch.mm(g, matrix.weight.t())


def of_matrix(
    mode: Mode,
    algebra: Algebra,
    biased: tuple[tuple[int, int], ...],
    rows: Tensor,
    g: Tensor,
    to: Matrix,
) -> None:
    """Writes the gradients of a weight and of its bias; not for autograd.

    Blocks of the weight that are zero, and elements of the bias that no column has, may keep what they are.
    """
    weight, bias, blocks, _ = to
    if mode.matrix:
        assert blocks is not None
        block_sparse.weights(rows, g, blocks.weights, weight, bias)
        return
    torch.mm(rows.t(), g, out=weight)
    if bias is None:
        return
    if g.numel() < _MANY or not items.serves(algebra, g):
        torch.sum(g, 0, out=bias)
    else:
        # The gradients of the other columns are nobody's.
        items.column_sums(algebra, g.contiguous(), biased, bias)


def linear(
    mode: Mode,
    algebra: Algebra,
    biased: tuple[tuple[int, int], ...],
    rows: Tensor,
    matrix: Matrix,
    parts: Sequence[Tensor],
) -> Tensor:
    """``bias + rows @ weight``, with gradients of every order. ``parts``: the tensors that rows were made of."""
    known = None
    if torch.is_grad_enabled():
        known = matrix.unchanged, Unchanged(parts)
    given = rows, matrix.weight, matrix.bias
    out: Tensor = _Linear.apply(mode, algebra, biased, matrix.blocks, known, *given)
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mode: Mode,
        algebra: Algebra,
        biased: tuple[tuple[int, int], ...],
        blocks: Blocks | None,
        known: tuple[Unchanged | None, ...] | None,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        mode = _served(mode, rows, weight)
        ctx.mode, ctx.algebra, ctx.biased, ctx.blocks = mode, algebra, biased, blocks
        ctx.has_bias, ctx.known = bias is not None, known
        ctx.save_for_backward(rows, weight)
        return multiply(mode, rows, Matrix(weight, bias, blocks))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        rows, weight = ctx.saved_tensors
        for unchanged in ctx.known or ():
            if unchanged is not None:
                unchanged.check()
        *_, wants_rows, wants_weight, wants_bias = asked.of(ctx, ctx.needs_input_grad)
        of_input = of_weight = of_bias = None
        if torch.is_grad_enabled() or doors.composes(g):
            of_input = g @ weight.t() if wants_rows else None
            of_weight = rows.t() @ g if wants_weight else None
            of_bias = g.sum(0) if wants_bias else None
        else:
            g = g.contiguous()
            mode = _served(ctx.mode, g)
            if wants_rows:
                of_input = of_rows(mode, g, Matrix(weight, None, ctx.blocks))
            if wants_weight:
                of_weight = torch.zeros_like(weight) if mode.matrix else torch.empty_like(weight)
                of_bias = g.new_zeros(g.shape[1]) if wants_bias else None
                to = Matrix(of_weight, of_bias, ctx.blocks)
                of_matrix(mode, ctx.algebra, ctx.biased, rows, g, to)
            elif wants_bias:
                of_bias = g.sum(0)
        return None, None, None, None, None, of_input, of_weight, of_bias
