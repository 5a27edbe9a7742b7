"""Calls the kernels of the items of transformers with tensors on CUDA: norms, gates, the features of attention.

Items are multivectors ``[blades, rows, channels]`` and scalars ``[rows, scalars]``, or ``None``. The last axis is
contiguous, all others may have any stride, so items can lie side by side in the rows of a matrix. A :class:`~.spots.Spot`
stands for both tensors, or for the multivectors of a product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..algebra import Algebra
from . import doors
from .calls import Slot
from .run import saved_dtype
from .spots import Spot
from .tensor_types import NAMES

Pair = tuple[Tensor, Tensor | None]
"""Multivectors and scalars."""

Items = Pair | Spot
"""Items as tensors, or as a place in a matrix."""

Eps = tuple[float, float]
"""The smallest mean norm of multivectors, and what is added to the variance of scalars."""


class Part(NamedTuple):
    """Queries, keys or values: items whose channels are ``[channels, heads]``."""

    items: Items
    features: Tensor
    """``[rows, heads, width]``, contiguous: of each taken blade its channels, features of distances, scalars, zeros."""
    heads: int
    taken: int
    """The blades that are features, as a set of bits."""
    negative: int = 0
    """The blades that are negated, as a set of bits."""
    distances: str | None = None
    """``"query"`` or ``"key"`` for features of distances."""
    weights: Tensor | None = None
    """The weights of distances ``[channels, heads]``."""
    of_weights: Tensor | None = None
    """The gradients of weights, ``[rows, channels, heads]``: the share of each row."""
    logarithms: bool = False
    """Whether ``weights`` are logarithms ``[heads, channels]``, and ``of_weights`` is of these, ``[rows, heads, channels]``."""


class Split(NamedTuple):
    """The way in which items become features."""

    eps: Eps | None
    """The norm of each head before anything else."""
    points: tuple[int, int, float] = (0, 0, 0.0)
    """The blade of the first coordinate, the number of coordinates, and the regularisation of distances."""


def serves(algebra: Algebra, *tensors: Tensor | None) -> bool:
    """Whether there are kernels for items of an algebra, of the type and on the device of some tensors."""
    if not _core.CUDA or algebra.blade_count not in (4, 8, 16, 32):
        return False
    first = tensors[0]
    if first is None or not first.is_cuda or first.dtype not in NAMES:
        return False
    if type(first) is not Slot and not doors.opens(*tensors):
        return False
    return all(
        t is None or (t.dtype == first.dtype and t.device == first.device) for t in tensors
    )


def serves_features(items: torch.dtype, features: torch.dtype) -> bool:
    """Whether there are kernels from items of a type to features of a type, and back."""
    return features == items or (items == torch.float32 and features.itemsize == 2)


Gains = tuple[Tensor | None, Tensor | None]
"""The gains of multivectors ``[channels, grades]`` and of scalars ``[scalars]``, of the items' type, contiguous."""


def norm(
    algebra: Algebra,
    eps: Eps,
    gains: Gains,
    x: Items,
    residual: tuple[Items, Items] | None,
    to: Items,
) -> None:
    """Writes the norm of items, times gains, to ``to``. With a residual, of the sum of the items and its first part,
    and the sum to its second part."""
    _check_gains(algebra, gains, _sizes(x))
    sums = None if residual is None else (_place(residual[0]), _place(residual[1]))
    given = _address(gains[0]), _address(gains[1]), 0
    _call(algebra, "norm", x, _sizes(x), eps, given, _place(x), sums, _place(to))


def _check_gains(algebra: Algebra, gains: Gains, sizes: tuple[int, int, int, str]) -> None:
    """Raises unless gains have a number for each channel and grade, and for each scalar: they may have been exchanged."""
    _, channels, scalars, _ = sizes
    for gain, count in zip(gains, (channels * algebra.grade_count, scalars)):
        if gain is not None and gain.numel() != count:
            raise ValueError(f"item_norm: expected a gain of {count} elements, got {list(gain.shape)}")


def norm_gradient(
    algebra: Algebra,
    eps: Eps,
    gains: Gains,
    x: Items,
    gradient: Items,
    through: Items | None,
    to: Items,
) -> Gains:
    """Writes the gradient of the norm's input from that of its result, plus ``through``. Returns the gradients of the
    gains."""
    sizes, partials = _sizes(x), None
    counts = [0 if gain is None else gain.numel() for gain in gains]
    if sum(counts):
        like = _tensor(x)
        dtype = saved_dtype(like.dtype)
        partials = like.new_empty(_items(algebra).norm_partials(sizes), sum(counts), dtype=dtype)
    given = _address(gains[0]), _address(gains[1]), _address(partials)
    other = None if through is None else _place(through)
    places = _place(x), _place(gradient), other, _place(to)
    _call(algebra, "norm_gradient", x, sizes, eps, given, *places)
    if partials is None:
        return None, None
    found = _sums(algebra, partials, [(0, sum(counts))], None)
    if found.dtype != like.dtype:
        found = found.to(like.dtype)
    starts = 0, counts[0]
    of_mv, of_s = (
        None if gain is None else found.narrow(0, start, count).view(gain.shape)
        for gain, start, count in zip(gains, starts, counts)
    )
    return of_mv, of_s


def gate(algebra: Algebra, activations: tuple[str, str], x: Items, to: Items) -> None:
    """Writes multivectors times the first activation of their scalar blade, and the second activation of scalars."""
    _call(algebra, "gate", x, _sizes(x), activations, _place(x), _place(to))


def gate_gradient(
    algebra: Algebra, activations: tuple[str, str], x: Items, gradient: Items, to: Items
) -> None:
    """Writes the gradient of the gate's input from that of its result."""
    places = _place(x), _place(gradient), _place(to)
    _call(algebra, "gate_gradient", x, _sizes(x), activations, *places)


def heads(algebra: Algebra, split: Split, parts: Sequence[Part]) -> None:
    """Writes the features of up to three parts, whose heads have equal channels."""
    first = parts[0]
    described = [_part(part) for part in parts]
    _call(algebra, "heads", first.items, _head_sizes(first), _split(split, first), described)


def heads_gradient(
    algebra: Algebra, split: Split, parts: Sequence[Part], to: Sequence[Items]
) -> None:
    """Writes the gradients of the parts' items from those of their features, which ``parts`` have."""
    first = parts[0]
    described = [_part(part) for part in parts]
    places = [_place(pair) for pair in to]
    sizes, how = _head_sizes(first), _split(split, first)
    _call(algebra, "heads_gradient", first.items, sizes, how, described, places)


def merge(algebra: Algebra, features: Tensor, merged: Items, back: bool) -> None:
    """Writes features ``[outer, heads, inner, features]`` to items whose channels are ``[heads, channels]``, or back;
    the rows of the items are ``[outer, inner]``."""
    count, inner = features.shape[1:3]
    rows, channels, scalars, dtype = _sizes(merged)
    sizes = (rows, channels // count, scalars // count, dtype)
    place = features.data_ptr(), NAMES[features.dtype]
    described = (*place, inner, count, features.stride()[:3])
    _call(algebra, "merge", merged, sizes, described, _place(merged), back)


def column_sums(
    algebra: Algebra, x: Tensor, runs: Sequence[tuple[int, int]], to: Tensor | None = None
) -> Tensor:
    """The sums over rows of runs of columns of a matrix ``[rows, width]``, ascending pairs of a start and a stop:
    ``[width]``, written to a tensor if one is given. The values of other columns are arbitrary."""
    return _sums(algebra, x, runs, to)


def _sums(
    algebra: Algebra, x: Tensor, runs: Sequence[tuple[int, int]], to: Tensor | None
) -> Tensor:
    rows, width = x.shape
    if len(runs) > _core.Items.MOST_RUNS:
        runs = [(0, width)]
    assert x.stride(1) == 1 or width <= 1
    columns = x.data_ptr(), rows, width, int(x.stride(0)), NAMES[x.dtype], list(runs)
    taken = sum(stop - start for start, stop in runs)
    parts = _items(algebra).sum_partials(columns)
    partials = x.new_empty(max(parts * taken, 1), dtype=saved_dtype(x.dtype))
    to = x.new_empty(width) if to is None else to
    _call(algebra, "column_sums", (x, None), columns, partials.data_ptr(), to.data_ptr())
    return to


def pack(algebra: Algebra, x: Tensor, places: Tensor, factors: Tensor) -> Tensor:
    """For each column of ``[uses, count]`` the sum of the numbers at the places, each times its factor: ``[count]``."""
    uses, count = places.shape
    to = x.new_empty(count)
    given = [_address(t) for t in (x, places, factors, to)]
    _call(algebra, "pack", (x, None), given, (count, uses), NAMES[x.dtype])
    return to


def pack_tensors(
    algebra: Algebra, tensors: Sequence[Tensor], places: Tensor, factors: Tensor
) -> Tensor:
    """:func:`pack` of numbers in several contiguous tensors: a place is the number of a tensor, shifted by ``PLACE_BITS``,
    plus the place in it."""
    uses, count = places.shape
    like = tensors[0]
    to = like.new_empty(count)
    given = [0, *[_address(t) for t in (places, factors, to)]]
    of_tensors = [t.data_ptr() for t in tensors]
    if type(like) is not Slot:
        doors.check_addresses("the linear layers of a transformer", tensors, of_tensors)
    sizes = count, uses
    _call(algebra, "pack_tensors", (like, None), of_tensors, given, sizes, NAMES[like.dtype])
    return to


def combine(
    algebra: Algebra, x: Items | None, factors: Tensor | None, y: Items | None, to: Items
) -> None:
    """Writes ``x`` times factors plus ``y``; ``None`` stands for zeros, and for factors of 1. ``factors``: of each blade and row,
    ``[blades, rows]``; scalars have none."""
    by = (0, 0, 0) if factors is None else (factors.data_ptr(), *factors.stride())
    given = None if x is None else _place(x), by, None if y is None else _place(y)
    _call(algebra, "combine", to, _sizes(to), *given, _place(to))


Factor = Tensor | Spot
"""Multivectors ``[blades, rows, channels]``."""


def product(algebra: Algebra, kind: str, x: Factor, y: Factor, to: Factor) -> None:
    """Writes the product of a kind of multivectors ``[blades, rows, channels]``."""
    operator, given = _product(algebra, kind), [_strided(x), _strided(y)]

    def run(target: Target) -> None:
        operator.forward_strided(_strided_sizes(x), given, _strided(to), target)

    launch(factor_tensor(x), run)


def product_gradient(
    algebra: Algebra, kind: str, x: Factor, y: Factor, gradient: Factor, to: tuple[Factor, Factor]
) -> None:
    """Writes the gradients of both factors of :func:`product`."""
    operator, given = _product(algebra, kind), [_strided(x), _strided(y)]
    places = [_strided(tensor) for tensor in to]

    def run(target: Target) -> None:
        operator.backward_strided(_strided_sizes(x), given, _strided(gradient), places, target)

    launch(factor_tensor(x), run)


@functools.cache
def _product(algebra: Algebra, kind: str) -> _core.Operator:
    return _core.Operator("product", algebra._core, {"kind": kind})


Target = Any
"""A device and the address of a stream there, or a list of the extension that makes calls later."""


def launch(x: Tensor, function: Callable[[Target], None]) -> None:
    """Calls a function with the device of a tensor and the address of PyTorch's stream there, or with the list of a slot."""
    if isinstance(x, Slot):
        function(x.region.draft.calls)
        return
    device = x.get_device()
    if device != torch._C._cuda_getDevice():
        # The extension makes the tensor's device current, which must not outlast the call.
        with torch.cuda.device(device):
            function((device, torch._C._cuda_getCurrentRawStream(device)))
        return
    function((device, torch._C._cuda_getCurrentRawStream(device)))


def factor_tensor(x: Factor) -> Tensor:
    """The tensor that a factor lies in."""
    return x.matrix if isinstance(x, Spot) else x


def _strided_sizes(x: Factor) -> tuple[int, int, str]:
    if isinstance(x, Spot):
        return x.matrix.shape[0], x.layout.channels, NAMES[x.matrix.dtype]
    return x.shape[1], x.shape[2], NAMES[x.dtype]


def _strided(x: Factor) -> tuple[int, int, int]:
    if isinstance(x, Spot):
        return x.place()[:3]
    blade, row, last = x.stride()
    assert last == 1 or x.shape[2] <= 1
    if type(x) is not Slot:
        doors.check("a product of multivectors", (x,))
    return x.data_ptr(), blade, row


def _tensor(items: Items) -> Tensor:
    return items.matrix if isinstance(items, Spot) else items[0]


def _call(algebra: Algebra, name: str, items: Items, *arguments: object) -> None:
    function = getattr(_items(algebra), name)
    launch(_tensor(items), lambda target: function(*arguments, target))


@functools.cache
def _items(algebra: Algebra) -> _core.Items:
    return _core.Items(algebra._core)


def _sizes(items: Items) -> tuple[int, int, int, str]:
    if isinstance(items, Spot):
        matrix, layout = items.matrix, items.layout
        return matrix.shape[0], layout.channels, layout.scalars, NAMES[matrix.dtype]
    mv, s = items
    return mv.shape[1], mv.shape[2], 0 if s is None else s.shape[1], NAMES[mv.dtype]


def _head_sizes(part: Part) -> tuple[int, int, int, str]:
    rows, channels, scalars, dtype = _sizes(part.items)
    return rows, channels // part.heads, scalars // part.heads, dtype


def _place(items: Items) -> tuple[int, int, int, int, int]:
    if isinstance(items, Spot):
        return items.place()
    mv, s = items
    blade, row, last = mv.stride()
    assert last == 1 or mv.shape[2] <= 1
    if type(mv) is not Slot:
        doors.check("a transformer", items, ("multivectors", "scalars"))
    if s is None:
        return mv.data_ptr(), blade, row, 0, 0
    assert s.stride(1) == 1 or s.shape[1] <= 1
    return mv.data_ptr(), blade, row, s.data_ptr(), s.stride(0)


def _split(split: Split, part: Part) -> tuple[object, ...]:
    return split.eps, split.points, NAMES[part.features.dtype]


def _part(part: Part) -> tuple[object, ...]:
    assert part.features.is_contiguous()
    if part.weights is not None and part.weights.numel() != _sizes(part.items)[1]:
        raise ValueError(
            f"attention: expected a weight of distances for each of {_sizes(part.items)[1]} channels of heads, got "
            f"{list(part.weights.shape)}"
        )
    return (
        _place(part.items),
        (part.features.data_ptr(), part.features.shape[-1]),
        (_address(part.weights), _address(part.of_weights), part.logarithms),
        part.heads,
        part.taken,
        part.negative,
        part.distances,
    )


def _address(x: Tensor | None) -> int:
    assert x is None or x.is_contiguous()
    if type(x) is torch.nn.Parameter:
        doors.check("a transformer", (x,))
    return 0 if x is None else x.data_ptr()
