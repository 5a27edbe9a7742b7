"""Calls the compiled layers of transformers with tensors on the CPU: linear maps that commute with a group, the
invariant norm, and features of heads. Shapes are those of ``flashcliff::equivariant``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..algebra import Algebra
from .items import Part, Split

_LARGE = 64 << 20
"""The bytes from which on a call asks for the memory of the system."""

Pair = tuple[Tensor, Tensor | None]
"""Multivectors ``[blades, rows, channels]`` and scalars ``[rows, channels]``."""


class Maps(NamedTuple):
    """The linear maps of a layer."""

    algebra: Algebra
    group: str
    unit: bool
    """Whether each map is divided by its Frobenius norm."""
    total: int
    """How many maps there are."""
    invariant: int
    """How many blades scalars mix with."""


class Sizes(NamedTuple):
    """The channels of a layer."""

    inputs: int
    outputs: int
    in_scalars: int
    out_scalars: int


def is_native(x: Tensor) -> bool:
    """Whether the compiled layers take a tensor: float32 or float64 on the CPU, with memory of its own, outside of
    ``torch.compile``."""
    if not x.is_cpu or x.dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling():
        return False
    # Tensors without memory of their own: fake ones, and those batched by a transform.
    return type(x) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def outputs(maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None], inputs: Pair) -> Pair:
    """The outputs of a layer."""
    return _one_side(True, maps, sizes, parameters, inputs)


def input_gradients(
    maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None], gradients: Pair
) -> Pair:
    """The gradients of the inputs from those of the outputs."""
    return _one_side(False, maps, sizes, parameters, gradients)


def _one_side(
    forward: bool, maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None], given: Pair
) -> Pair:
    # The tensors are kept by name until the call returns.
    mv, scalars, *parameters = _plain(*given, *parameters)  # type: ignore[assignment]
    assert mv is not None
    rows = mv.shape[1]
    channels = sizes.outputs if forward else sizes.inputs
    of_scalars = sizes.out_scalars if forward else sizes.in_scalars
    _check_room("equivariant_linear", mv, mv.shape[0] * channels + of_scalars)
    to = mv.new_empty((mv.shape[0], rows, channels))
    to_s = mv.new_empty((rows, of_scalars)) if of_scalars else None
    layer = _layer(maps.algebra, maps.group, maps.unit)
    call = layer.output if forward else layer.input_gradient
    addresses = [_address(parameter) for parameter in parameters]
    # The one large dense matrix is left to PyTorch's matrix product.
    dense, addresses[3] = parameters[3], 0
    call(
        mv.dtype == torch.float64,
        (rows, *sizes),
        tuple(addresses),
        (_address(mv), _address(scalars)),
        (_address(to), _address(to_s)),
    )
    if to_s is not None and scalars is not None and dense is not None:
        to_s.addmm_(scalars, dense.t() if forward else dense)
    return to, to_s


def weight_gradients(
    maps: Maps, sizes: Sizes, biases: tuple[bool, bool], gradients: Pair, inputs: Pair
) -> list[Tensor | None]:
    """The gradients of the parameters, in their order.

    Args:
        maps: the maps of the layer.
        sizes: its channels.
        biases: whether it has a bias of blades, and one of scalars.
        gradients: of the outputs.
        inputs: the inputs.
    """
    y, t, x, s = _plain(*gradients, *inputs)
    assert x is not None and y is not None
    made_of, mixed = x, maps.invariant

    def empty(*shape: int) -> Tensor | None:
        return made_of.new_empty(shape) if all(shape) else None

    to = [
        x.new_empty((sizes.outputs, sizes.inputs, maps.total)),
        empty(sizes.outputs * mixed, sizes.in_scalars),
        empty(sizes.out_scalars, sizes.inputs * mixed),
        None,
        empty(sizes.outputs * mixed) if biases[0] else None,
        empty(sizes.out_scalars) if biases[1] else None,
    ]
    layer = _layer(maps.algebra, maps.group, maps.unit)
    layer.weight_gradient(
        x.dtype == torch.float64,
        (x.shape[1], *sizes),
        (_address(y), _address(t)),
        (_address(x), _address(s)),
        tuple([_address(tensor) for tensor in to]),
    )
    if t is not None and s is not None:
        to[3] = t.t() @ s
    return to


def norm(algebra: Algebra, x: Tensor, eps: float, dim: int) -> Tensor:
    """The normalised multivectors; ``dim`` is the axis of the channels."""
    (x,) = _plain(x)  # type: ignore[assignment]
    _check_room("invariant_norm", x, x.numel() // max(1, x.shape[1]))
    to = torch.empty_like(x)
    _norm(algebra).forward(
        x.dtype == torch.float64, _norm_sizes(x, dim), eps, _address(x), _address(to)
    )
    return to


def norm_gradient(algebra: Algebra, x: Tensor, g: Tensor, eps: float, dim: int) -> Tensor:
    """The gradient of the norm's input from that of its output."""
    x, g = _plain(x, g)  # type: ignore[assignment]
    _check_room("the gradient of invariant_norm", x, x.numel() // max(1, x.shape[1]))
    to = torch.empty_like(x)
    addresses = _address(x), _address(g), _address(to)
    _norm(algebra).backward(x.dtype == torch.float64, _norm_sizes(x, dim), eps, *addresses)
    return to


def serves_heads(items: torch.dtype, features: torch.dtype, *tensors: Tensor | None) -> bool:
    """Whether :func:`heads` takes items of a type, to features of a type: tensors on the CPU."""
    given = [tensor for tensor in tensors if tensor is not None]
    return features == items and all(is_native(t) and t.dtype == items for t in given)


def heads(algebra: Algebra, split: Split, parts: Sequence[Part]) -> None:
    """Writes the features of parts as :func:`.items.heads` does, without a norm."""
    for part in parts:
        layer, sizes, place = _head_call(algebra, split, part)
        double = part.features.dtype == torch.float64
        layer.forward(double, sizes, place, _address(part.weights), part.features.data_ptr())


def heads_gradient(
    algebra: Algebra, split: Split, parts: Sequence[Part], to: Sequence[Pair]
) -> None:
    """Writes gradients as :func:`.items.heads_gradient` does; that of weights is the sum over rows."""
    for part, pair in zip(parts, to, strict=True):
        layer, sizes, place = _head_call(algebra, split, part)
        addresses = _address(part.weights), part.features.data_ptr()
        double = part.features.dtype == torch.float64
        layer.backward(double, sizes, place, *addresses, _place(*pair), _address(part.of_weights))


def _head_call(
    algebra: Algebra, split: Split, part: Part
) -> tuple[_core.HeadFeatures, tuple[int, int, int, int, int], tuple[int, int, int, int, int]]:
    """The features of a part, its sizes, and the place of its items."""
    mv, s = part.items  # type: ignore[misc]
    rows, count, width = part.features.shape
    sizes = rows, mv.shape[-1] // count, 0 if s is None else s.shape[-1] // count, count, width
    distances = None if part.distances is None else (part.distances == "query", *split.points)
    layer = _head_features(algebra.blade_count, part.taken, part.negative, distances)
    return layer, sizes, _place(mv, s)


def _place(mv: Tensor, s: Tensor | None) -> tuple[int, int, int, int, int]:
    """The addresses of multivectors and scalars, and the strides of blades and rows; the last axis is contiguous."""
    blade, row, _ = mv.stride()
    return mv.data_ptr(), _address(s), blade, row, 0 if s is None else s.stride(0)


@functools.cache
def _head_features(
    blades: int, taken: int, negative: int, distances: tuple[bool, int, int, float] | None
) -> _core.HeadFeatures:
    return _core.HeadFeatures(blades, taken, negative, distances)


def _check_room(what: str, like: Tensor, elements: int) -> None:
    """Raises ``MemoryError`` if the system has no room for so many elements for each row of a tensor."""
    rows = like.shape[1]
    taken = rows * elements * like.element_size()
    if taken >= _LARGE:
        _core.check_room(f"{what} of {rows} rows, {like.dtype}", taken, rows)


def _norm_sizes(x: Tensor, dim: int) -> tuple[int, int, int]:
    """Rows, channels, and groups of channels behind them."""
    return math.prod(x.shape[1:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :])


@functools.cache
def _layer(algebra: Algebra, group: str, unit: bool) -> _core.EquivariantLinear:
    return _core.EquivariantLinear(algebra._core, group, unit)


@functools.cache
def _norm(algebra: Algebra) -> _core.InvariantNorm:
    return _core.InvariantNorm(algebra._core)


def _plain(*tensors: Tensor | None) -> list[Tensor | None]:
    """Tensors in the order of their memory. All have the type of the first."""
    first = tensors[0]
    assert first is not None
    for tensor in tensors:
        if tensor is not None and (tensor.dtype != first.dtype or not tensor.is_cpu):
            raise TypeError(
                f"expected all tensors and parameters of type {first.dtype} on the CPU, got "
                f"{tensor.dtype} on {tensor.device}"
            )
    return [None if t is None else t.contiguous().resolve_neg() for t in tensors]


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
