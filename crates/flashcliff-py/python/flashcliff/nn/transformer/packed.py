"""Equivariant linear layers as one matrix product on CUDA.

All blades and scalars of an item are one row, ``[rows, blades * inputs + scalars]``, and the parameters are packed into
one matrix, zeros included. That is up to 8 times the multiplications of :mod:`.contract`, on tensor cores and in one
call: a matrix product of few rows takes as long as reading and writing them. :mod:`.products` says which products leave the
zeros out. Layers of one input are one product too.

Every step is an operator whose adjoint is another step, so gradients of every order exist. Outputs are ``[blades, rows,
channels]`` like all multivectors, but an item is contiguous in memory, which the next layer reads without a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ... import _core
from ..._ops import block_sparse, doors, items, run
from ..._ops.block_sparse import Blocks
from ..._ops.kept import for_later_calls
from ..._ops.spots import below_autograd
from ...algebra import Algebra
from . import products
from .products import Layer, Matrix
from .unchanged import Unchanged

__all__ = ["Layer", "Matrix", "empty_items", "empty_together", "is_plain", "matrices", "outputs", "serves"]

# Up to this many multiplications and additions, launches cost more than arithmetic.
_FEW = 2e9
# Up to this size of a matrix, its product takes less time than the passes over memory of the way with fewer
# multiplications: `read written / (read + written)`, on tensor cores and without.
_SIZES = (500, 90)
# Elements of a matrix begin at a multiple of this, as tensor cores want them.
_ALIGNED = 16
PLAIN = doors.PLAIN
_PARAMETERS = 6
"""The parameters of a layer, as many as the fields of :class:`~.contract.Parameters`."""


def is_plain(x: Tensor) -> bool:
    """Whether a tensor is on CUDA, and may be read by its address."""
    return x.is_cuda and doors.opens(x)


def serves(layers: Sequence[Layer], x: Tensor) -> bool:
    """Whether layers of an input ``[blades, *batch, inputs]`` run as one dense product."""
    if not is_plain(x):
        return False
    if products.is_sparse(layers, x, x.shape[1:-1].numel()):
        return True
    on_tensor_cores = x.dtype.itemsize == 2 or (x.dtype == torch.float32 and run.takes_tf32())
    read = layers[0].rows
    written = sum(layer.width for layer in layers)
    if 2 * x.shape[1:-1].numel() * read * written < _FEW:
        return True
    return read * written < _SIZES[not on_tensor_cores] * (read + written)


def matrices(
    groups: tuple[tuple[Layer, ...], ...],
    parameters: Sequence[Tensor | None],
    dtype: torch.dtype | None = None,
) -> list[Matrix]:
    """The packed matrices of groups of layers; the layers of a group share their input.

    Args:
        groups: the layers, of one geometry.
        parameters: those of all layers, each in the order of :class:`~.contract.Parameters`.
        dtype: the type of the matrices; that of the parameters by default.
    """
    given = [p.reshape(-1) for p in parameters if p is not None]
    flat = given[0] if len(given) == 1 else torch.cat(given)
    if dtype is not None:
        flat = flat.to(dtype)
    table = table_of(groups, flat.device, flat.dtype)
    packed = _Pack.apply(table, flat)
    # All at once, so that their gradients are put together once.
    pieces = packed.split([size for shape in table.shapes for size in shape.sizes])
    found = []
    at = 0
    for layers, shape, weight, bias in zip(
        groups, table.shapes, pieces[::3], pieces[1::3], strict=True
    ):
        own = parameters[at : at + _PARAMETERS * len(layers)]
        at += len(own)
        found.append(
            Matrix(
                weight.view(shape.rows, shape.columns),
                bias if shape.bias else None,
                shape.blocks,
                Unchanged(own) if torch.is_grad_enabled() else None,
            )
        )
    return found


def outputs(
    layers: Sequence[Layer], matrix: Matrix, x: Tensor, s: Tensor | None
) -> list[tuple[Tensor, Tensor | None]]:
    """The outputs of layers that share their input.

    Args:
        layers: the layers.
        matrix: their packed matrix.
        x: multivectors ``[blades, rows, inputs]``.
        s: scalars ``[rows, in_scalars]``, or ``None``.
    """
    rows = _joined(x) if s is None else _joined(x, s)
    mode = products.mode_of(layers, matrix.blocks, rows, len(rows))
    biased = products.biased_columns(tuple(layers))
    joined = products.linear(mode, layers[0].geometry.algebra, biased, rows, matrix, [x] if s is None else [x, s])
    shapes: list[tuple[int, ...]] = []
    for layer in layers:
        shapes.append((x.shape[0], layer.sizes.outputs))
        if layer.sizes.out_scalars:
            shapes.append((layer.sizes.out_scalars,))
    parts = iter(_Part.apply(tuple(shapes), joined))
    return [(next(parts), next(parts) if layer.sizes.out_scalars else None) for layer in layers]


def _joined(*parts: Tensor) -> Tensor:
    # Where the backward pass does not come by the parts, nothing would see that one was changed in place.
    in_place = not torch.is_grad_enabled() or all(part.requires_grad for part in parts)
    out: Tensor = _Join.apply(in_place, *parts)
    return out


class _Join(torch.autograd.Function):
    """Multivectors ``[blades, rows, channels]`` and scalars ``[rows, channels]`` side by side, an item in a row.

    With ``in_place``, parts that already are side by side are not copied. That one of them must not be changed in place
    before the backward pass is then an error like that of PyTorch's layers.
    """

    @staticmethod
    def forward(ctx: Any, in_place: bool, *parts: Tensor) -> Tensor:
        ctx.shapes = tuple(
            (part.shape[0], part.shape[2]) if part.dim() == 3 else (part.shape[1],)
            for part in parts
        )
        found = side_by_side(parts) if in_place and not doors.composes(*parts) else None
        if found is not None:
            ctx.save_for_backward(*parts)
            return found
        return copied_together(parts)

    @staticmethod
    def backward(ctx: Any, joined: Tensor) -> Any:
        # This checks that parts are as they were.
        _ = ctx.saved_tensors
        if doors.composes(joined):
            return None, *_apart(ctx.shapes, joined)
        return None, *_Part.apply(ctx.shapes, joined)


def copied_together(parts: Sequence[Tensor]) -> Tensor:
    """Copies of multivectors ``[blades, rows, channels]`` and scalars ``[rows, channels]``, an item in a row."""
    pieces: list[Tensor] = []
    for part in parts:
        if part.dim() == 2:
            pieces.append(part)
        elif part.stride()[::2] == (part.shape[2], 1):
            pieces.append(part.transpose(0, 1).flatten(1))
        else:
            # One kernel reads all blades where they are.
            pieces += part.unbind(0)
    return torch.cat(pieces, 1)


def side_by_side(parts: Sequence[Tensor]) -> Tensor | None:
    """The joined rows, if the parts are where :class:`_Part` has them."""
    first = parts[0]
    storage, start, rows = first.untyped_storage(), first.storage_offset(), first.shape[-2]
    width, at = sum(part.shape[:-2].numel() * part.shape[-1] for part in parts), start
    for part in parts:
        channels = part.shape[-1]
        strides = (channels, width, 1) if part.dim() == 3 else (width, 1)
        same = part.untyped_storage()._cdata == storage._cdata
        if not same or part.stride() != strides or part.storage_offset() != at:
            return None
        at += part.shape[:-2].numel() * channels
    with below_autograd():
        return first.as_strided((rows, width), (width, 1), start)


class _Part(torch.autograd.Function):
    """The parts of joined rows, in place: the adjoint of :class:`_Join`."""

    @staticmethod
    def forward(ctx: Any, shapes: tuple[tuple[int, ...], ...], joined: Tensor) -> Any:
        joined = joined.contiguous()
        rows, width = joined.shape
        parts, at = [], joined.storage_offset()
        for shape in shapes:
            # Tensors of their own on the same memory, not views, which no caller could change in place.
            part, channels = joined.new_empty(0), shape[-1]
            if len(shape) == 1:
                part.set_(joined.untyped_storage(), at, (rows, channels), (width, 1))
                at += channels
            else:
                size, strides = (shape[0], rows, channels), (channels, width, 1)
                part.set_(joined.untyped_storage(), at, size, strides)
                at += shape[0] * channels
            parts.append(part)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *parts: Tensor) -> Any:
        return None, _joined(*parts)


def _apart(shapes: tuple[tuple[int, ...], ...], joined: Tensor) -> list[Tensor]:
    """The parts of joined rows as views."""
    parts = joined.split([torch.Size(shape).numel() for shape in shapes], 1)
    return [
        part if len(shape) == 1 else part.unflatten(1, shape).movedim(1, 0)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def empty_items(like: Tensor, shape: tuple[int, ...], scalars: int | None) -> tuple[Tensor, ...]:
    """Multivectors of a shape ``[blades, *batch, channels]`` and scalars side by side, which :class:`_Join` does not
    copy; multivectors alone for ``None``."""
    blades, *batch, channels = shape
    rows = like.new_empty(*batch, blades * channels + (scalars or 0))
    # Tensors of their own on the same memory, not views, which no caller could change in place.
    strides = rows.stride()[:-1]
    with below_autograd():
        mv = rows.as_strided(shape, (channels, *strides, 1), 0)
        if scalars is None:
            return (mv,)
        at = blades * channels
        return mv, rows.as_strided((*batch, scalars), (*strides, 1), at)


def empty_together(like: Sequence[Tensor]) -> list[Tensor]:
    """Multivectors of the shapes of some that have one batch, all side by side, as :class:`_Part` has the outputs of
    layers that share their input."""
    first = like[0]
    blades, batch = first.shape[0], first.shape[1:-1]
    joined = first.new_empty(*batch, blades * sum(x.shape[-1] for x in like))
    parts = joined.split([blades * x.shape[-1] for x in like], -1)
    return [part.unflatten(-1, (blades, x.shape[-1])).movedim(-2, 0) for part, x in zip(parts, like)]


class _Shape(NamedTuple):
    """That of a matrix, and whether a bias follows it."""

    rows: int
    columns: int
    bias: bool
    blocks: Blocks | None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of the matrix, of the bias, and up to where the next matrix is aligned."""
        weight, bias = self.rows * self.columns, self.columns * self.bias
        return weight, bias, -(weight + bias) % _ALIGNED


class Table(NamedTuple):
    """Where the elements of matrices come from, and where those of their gradients go."""

    algebra: Algebra
    sizes: tuple[int, ...]
    """The elements of each parameter."""
    shapes: tuple[_Shape, ...]
    source: Tensor
    """The parameter of each element; any for zeros."""
    spread: Tensor | None
    """The same parameter by its tensor and its place there; ``None`` where there are too many tensors, or too large ones."""
    factor: Tensor
    """Its factor, 0 for zeros."""
    places: Tensor
    """``[uses, parameters]``: elements that are a parameter; any where it has fewer."""
    weights: Tensor
    """Their factors, 0 where it has fewer."""

    def matrices(self, elements: Tensor) -> list[Matrix]:
        """The matrices, in place, whose elements lie one after another; not for autograd."""
        found, start = [], elements.storage_offset()
        for shape in self.shapes:
            weight = elements.as_strided((shape.rows, shape.columns), (shape.columns, 1), start)
            of_weight, of_bias, behind = shape.sizes
            bias = elements.as_strided((of_bias,), (1,), start + of_weight) if of_bias else None
            start += of_weight + of_bias + behind
            found.append(Matrix(weight, bias, shape.blocks))
        return found


class _Pack(torch.autograd.Function):
    """The elements of all matrices from all parameters, one after another."""

    @staticmethod
    def forward(ctx: Any, table: Table, flat: Tensor) -> Tensor:
        ctx.table = table
        return elements_of(table, flat)

    @staticmethod
    def backward(ctx: Any, elements: Tensor) -> Any:
        return None, _Unpack.apply(ctx.table, elements)


class _Unpack(torch.autograd.Function):
    """The gradients of parameters from those of matrices: the adjoint of :class:`_Pack`, without atomics."""

    @staticmethod
    def forward(ctx: Any, table: Table, elements: Tensor) -> Tensor:
        ctx.table = table
        return of_parameters(table, elements)

    @staticmethod
    def backward(ctx: Any, flat: Tensor) -> Any:
        return None, _Pack.apply(ctx.table, flat)


_is_contiguous = methodcaller("is_contiguous")


def elements_of(table: Table, flat: Tensor) -> Tensor:
    """The elements of all matrices from all parameters one after another."""
    if flat.numel() != sum(table.sizes):
        raise ValueError(
            f"the linear layers of a transformer: expected parameters of {sum(table.sizes)} elements together, got "
            f"{flat.numel()}; make new layers of the sizes that are wanted"
        )
    if items.serves(table.algebra, flat):
        return items.pack(table.algebra, flat, table.source[None], table.factor[None])
    return flat.index_select(0, table.source).mul_(table.factor)


def elements_from(table: Table, parameters: Sequence[Tensor]) -> Tensor:
    """The elements of all matrices from all parameters."""
    if table.spread is None or not all(map(_is_contiguous, parameters)):
        return elements_of(table, torch._C._nn.flatten_dense_tensors(list(parameters)))
    return items.pack_tensors(table.algebra, parameters, table.spread[None], table.factor[None])


def of_parameters(table: Table, elements: Tensor) -> Tensor:
    """The gradients of all parameters from those of the elements of all matrices."""
    if items.serves(table.algebra, elements):
        return items.pack(table.algebra, elements.contiguous(), table.places, table.weights)
    used = elements.index_select(0, table.places.view(-1)).view(table.places.shape)
    return used.mul_(table.weights).sum(0)


@functools.lru_cache(maxsize=1024)
def table_of(
    groups: tuple[tuple[Layer, ...], ...], device: torch.device, dtype: torch.dtype
) -> Table:
    with for_later_calls():
        shapes, indices, factors = [], [], []
        sizes: list[int] = []
        for layers in groups:
            rows = layers[0].rows
            has_bias = any(layer.biased or layer.has_scalar_bias for layer in layers)
            shape = rows + has_bias, sum(layer.width for layer in layers)
            index, factor = torch.zeros(shape, dtype=torch.int32), torch.zeros(shape).double()
            column = 0
            for layer in layers:
                _place(layer, sizes, column, index, factor)
                column += layer.width
            blocks = None
            if dtype == torch.float32:
                blocks = block_sparse.blocks_of(factor[:rows] != 0, device)
            shapes.append(_Shape(rows, shape[1], has_bias, blocks))
            rest = shapes[-1].sizes[2]
            indices.append(F.pad(index.view(-1), (0, rest)))
            factors.append(F.pad(factor.view(-1), (0, rest)))
        source, signs = torch.cat(indices), torch.cat(factors)
        places, weights = _inverse(source, signs, sum(sizes))
        spread = _spread(source, sizes)
        to = device, dtype
        on_device = None if spread is None else spread.to(device)
        on = source.to(device), on_device, signs.to(*to), places.to(device), weights.to(*to)
        return Table(groups[0][0].geometry.algebra, tuple(sizes), tuple(shapes), *on)


def _spread(source: Tensor, sizes: list[int]) -> Tensor | None:
    """Places in tensors of some sizes from those in all tensors one after another."""
    if not _core.CUDA:
        return None
    bits = _core.Items.PLACE_BITS
    if len(sizes) > _core.Items.MOST_TENSORS or max(sizes, default=0) > 1 << bits:
        return None
    ends = torch.tensor(sizes).cumsum(0)
    tensor = torch.bucketize(source.long(), ends, right=True)
    behind = source - (ends - torch.tensor(sizes))[tensor]
    return ((tensor << bits) + behind).int()


def _place(
    layer: Layer, parameters: list[int], column: int, index: Tensor, factor: Tensor
) -> None:
    """Enters a layer's parameters into the table, and their sizes into a list."""
    geometry, sizes = layer.geometry, layer.sizes
    plan, mixed = geometry.plan, geometry.scalar_blades
    blades, inputs, to = len(geometry.norms), sizes.inputs, sizes.outputs
    from_scalars = slice(blades * inputs, blades * inputs + sizes.in_scalars)
    to_scalars = slice(column + blades * to, column + layer.width)

    def read(blade: int) -> slice:
        return slice(blade * inputs, (blade + 1) * inputs)

    def written(blade: int) -> slice:
        return slice(column + blade * to, column + (blade + 1) * to)

    def parameter(*shape: int) -> Tensor:
        start, size = sum(parameters), torch.Size(shape).numel()
        parameters.append(size)
        return torch.arange(start, start + size, dtype=torch.int32).view(shape)

    def enter(rows: slice | int, columns: slice, numbers: Tensor, value: float = 1.0) -> None:
        assert not factor[rows, columns].any(), "two maps have the same entry"
        index[rows, columns] = numbers.t() if numbers.dim() == 2 else numbers
        factor[rows, columns] = value

    weight = parameter(to, inputs, plan.count)
    for run_of_blades in plan.runs:
        for t in range(run_of_blades.length):
            source, at = run_of_blades.input + t, run_of_blades.start + t
            if run_of_blades.reversed:
                source = blades - 1 - source
            rows, columns = read(source), written(run_of_blades.output + t)
            enter(rows, columns, weight[..., plan.map_of[at]], plan.factors[at])
    if to and sizes.in_scalars:
        to_blades = parameter(to, len(mixed), sizes.in_scalars)
        for at, blade in enumerate(mixed):
            enter(from_scalars, written(blade), to_blades[:, at])
    if sizes.out_scalars:
        of_blades = parameter(sizes.out_scalars, inputs, len(mixed))
        for at, blade in enumerate(mixed):
            enter(read(blade), to_scalars, of_blades[..., at])
        if sizes.in_scalars:
            enter(from_scalars, to_scalars, parameter(sizes.out_scalars, sizes.in_scalars))
    if layer.biased:
        bias = parameter(to, len(layer.biased))
        for at, blade in enumerate(layer.biased):
            enter(-1, written(blade), bias[:, at])
    if layer.has_scalar_bias:
        enter(-1, to_scalars, parameter(sizes.out_scalars))


def _inverse(index: Tensor, factor: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """For each parameter its elements of the matrix and their factors, ``[uses, count]``."""
    used = factor.nonzero().view(-1)
    order = used[torch.argsort(index[used], stable=True)]
    of = index[order].long()
    uses = torch.bincount(of, minlength=count)
    rank = torch.arange(len(order)) - (uses.cumsum(0) - uses)[of]
    places = torch.zeros(int(uses.max()) if count else 0, count, dtype=torch.int32)
    weights = torch.zeros(places.shape, dtype=factor.dtype)
    places[rank, of] = order.int()
    weights[rank, of] = factor[order]
    return places, weights
