"""Calls the compiled layers of transformers with tensors on the CPU: linear maps that commute with a group, and
the invariant norm. Shapes are those of ``flashcliff::equivariant``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..algebra import Algebra
from . import doors

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
    """Whether the compiled layers take a tensor: float32 or float64 on the CPU, where :mod:`.doors` lets them read it."""
    return x.is_cpu and x.dtype in _TYPES and doors.opens(x)


_TYPES = (torch.float32, torch.float64)
_LINEAR, _NORM = "equivariant_linear", "invariant_norm"


def outputs(maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None], inputs: Pair) -> Pair | None:
    """The outputs of a layer; ``None`` if a tensor cannot be read where it is."""
    return _one_side(True, maps, sizes, parameters, inputs)


def input_gradients(
    maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None], gradients: Pair
) -> Pair | None:
    """The gradients of the inputs from those of the outputs; ``None`` as for :func:`outputs`."""
    return _one_side(False, maps, sizes, parameters, gradients)


def _one_side(
    forward: bool, maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None], given: Pair
) -> Pair | None:
    found = doors.addresses(_LINEAR, (*given, *parameters))
    if found is None:
        return None
    # The tensors are kept by name until the call returns.
    (mv, scalars, *parameters), addresses = found  # type: ignore[assignment]
    assert mv is not None
    _check_sizes(maps, sizes, parameters)
    rows = mv.shape[1]
    channels = sizes.outputs if forward else sizes.inputs
    of_scalars = sizes.out_scalars if forward else sizes.in_scalars
    _check_room(_LINEAR, mv, mv.shape[0] * channels + of_scalars)
    to = mv.new_empty((mv.shape[0], rows, channels))
    to_s = mv.new_empty((rows, of_scalars)) if of_scalars else None
    layer = _layer(maps.algebra, maps.group, maps.unit)
    call = layer.output if forward else layer.input_gradient
    # The one large dense matrix is left to PyTorch's matrix product.
    dense = parameters[3]
    call(
        mv.dtype == torch.float64,
        (rows, *sizes),
        (*addresses[2:5], 0, *addresses[6:]),
        (addresses[0], addresses[1]),
        (_address(to), _address(to_s)),
    )
    if to_s is not None and scalars is not None and dense is not None:
        to_s.addmm_(scalars, dense.t() if forward else dense)
    return to, to_s


def _check_sizes(maps: Maps, sizes: Sizes, parameters: Sequence[Tensor | None]) -> None:
    """Raises unless parameters have as many elements as the sizes of a layer say: they may have been exchanged."""
    for parameter, (name, count) in zip(parameters, _counts(maps.total, maps.invariant, sizes)):
        if parameter is not None and parameter.numel() != count:
            raise ValueError(
                f"{_LINEAR}: expected {name} of {count} elements, for {sizes}, got {list(parameter.shape)}; make a new "
                "layer of the sizes that are wanted"
            )


@functools.lru_cache(maxsize=1024)
def _counts(total: int, invariant: int, sizes: Sizes) -> tuple[tuple[str, int], ...]:
    """The elements of the parameters of a layer, in their order."""
    inputs, outputs, in_scalars, out_scalars = sizes
    return (
        ("weight", outputs * inputs * total),
        ("a map of scalars to blades", outputs * invariant * in_scalars),
        ("a map of blades to scalars", out_scalars * inputs * invariant),
        ("a map of scalars", out_scalars * in_scalars),
        ("a bias of blades", outputs * invariant),
        ("a bias of scalars", out_scalars),
    )


def weight_gradients(
    maps: Maps, sizes: Sizes, biases: tuple[bool, bool], gradients: Pair, inputs: Pair
) -> list[Tensor | None] | None:
    """The gradients of the parameters, in their order; ``None`` as for :func:`outputs`.

    Args:
        maps: the maps of the layer.
        sizes: its channels.
        biases: whether it has a bias of blades, and one of scalars.
        gradients: of the outputs.
        inputs: the inputs.
    """
    found = doors.addresses(_LINEAR, (*gradients, *inputs))
    if found is None:
        return None
    (y, t, x, s), addresses = found
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
        (addresses[0], addresses[1]),
        (addresses[2], addresses[3]),
        tuple([_address(tensor) for tensor in to]),
    )
    if t is not None and s is not None:
        to[3] = t.t() @ s
    return to


def norm(algebra: Algebra, x: Tensor, eps: float, dim: int) -> Tensor:
    """The normalised multivectors, of a tensor that is native; ``dim`` is the axis of the channels."""
    (x,), (address,) = doors.addresses(_NORM, (x,))  # type: ignore[misc, assignment]
    _check_room(_NORM, x, x.numel() // max(1, x.shape[1]))
    to = torch.empty_like(x)
    _norm(algebra).forward(
        x.dtype == torch.float64, _norm_sizes(x, dim), eps, address, to.data_ptr()
    )
    return to


def norm_gradient(algebra: Algebra, x: Tensor, g: Tensor, eps: float, dim: int) -> Tensor:
    """The gradient of the norm's input from that of its output; both are native."""
    (x, g), addresses = doors.addresses(_NORM, (x, g))  # type: ignore[misc, assignment]
    _check_room("the gradient of invariant_norm", x, x.numel() // max(1, x.shape[1]))
    to = torch.empty_like(x)
    places = addresses[0], addresses[1], to.data_ptr()
    _norm(algebra).backward(x.dtype == torch.float64, _norm_sizes(x, dim), eps, *places)
    return to


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


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
