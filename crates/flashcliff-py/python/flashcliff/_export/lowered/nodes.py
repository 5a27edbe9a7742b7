"""Nodes that are neither operators nor steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import _core
from ..operations import Operations, Size, Tensor
from .layout import Token, axis_of

__all__ = ["KINDS", "Relations"]


def _both(ops: Operations, x: Any, y: Any, scale: float) -> Any:
    """The sum of two values times a number, part by part of tokens."""
    if isinstance(x, Token):
        parts = (None if a is None else _both(ops, a, b, scale) for a, b in zip(x, y, strict=True))
        return Token(*parts)
    found = ops.add(x, y)
    return found if scale == 1 else ops.multiply(found, np.asarray(float(scale)))


def _scaled_sum(ops: Operations, scale: float, inputs: Sequence[Any]) -> list[Any]:
    if len(inputs) == 2:
        return [_both(ops, inputs[0], inputs[1], scale)]
    factor = np.asarray(float(scale))
    x = inputs[0]
    if isinstance(x, Token):
        return [Token(*(None if own is None else ops.multiply(own, factor) for own in x))]
    return [ops.multiply(x, factor)]


def _concatenate(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    return [ops.concatenate([ops.reshape(own, [-1]) for own in inputs], 0)]


def _join(ops: Operations, of: dict[str, Any], inputs: Sequence[Any]) -> list[Any]:
    return [ops.concatenate(inputs, of["axis"])]


def _split(ops: Operations, of: dict[str, Any], inputs: Sequence[Any]) -> list[Any]:
    found, first = [], 0
    for size in of["sizes"]:
        found.append(ops.slice(inputs[0], of["axis"], first, first + size))
        first += size
    return found


def _points(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    """Points ``[rows, points, dim]`` as ``[1 + dim, rows, points]``, whose scalars are 0."""
    vectors = ops.transpose(inputs[0], (2, 0, 1))
    zero = ops.multiply(ops.slice(vectors, 0, 0, 1), np.asarray(0.0))
    return [ops.concatenate([zero, vectors], 0)]


def _extend_blades(ops: Operations, blades: int, inputs: Sequence[Any]) -> list[Any]:
    x = inputs[0]
    count = ops.size(x, 0)
    if count == blades:
        return [x]
    zero = ops.multiply(ops.slice(x, 0, 0, 1), np.zeros((blades - count, 1, 1)))
    return [ops.concatenate([x, zero], 0)]


def _blade_norm(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    squares = ops.sum(ops.multiply(inputs[0], inputs[0]), 0)
    return [ops.function("sqrt", squares)]


def _silu(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    return [ops.multiply(inputs[0], ops.function("sigmoid", inputs[0]))]


def _relu(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    return [ops.function("relu", inputs[0])]


def _blade(ops: Operations, at: int, inputs: Sequence[Any]) -> list[Any]:
    return [ops.slice(inputs[0], 0, at, at + 1)]


def _first_blades(ops: Operations, count: int, inputs: Sequence[Any]) -> list[Any]:
    return [ops.slice(inputs[0], 0, 0, count)]


def _blades_to_channels(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    """The blades of each channel side by side."""
    x = inputs[0]
    count = ops.size(x, 0) * ops.size(x, 2)
    return [ops.reshape(ops.transpose(x, (1, 2, 0)), [1, -1, count])]


def _channels_to_blades(ops: Operations, blades: int, inputs: Sequence[Any]) -> list[Any]:
    x = inputs[0]
    count = ops.size(x, 2) // blades
    return [ops.transpose(ops.reshape(x, [-1, count, blades]), (2, 0, 1))]


def _reverse_axes(ops: Operations, _: None, inputs: Sequence[Any]) -> list[Any]:
    return [ops.transpose(inputs[0], (2, 1, 0))]


KINDS: dict[str, Callable[[Operations, Any, Sequence[Any]], list[Any]]] = {
    "scaled_sum": _scaled_sum,
    "concatenate": _concatenate,
    "join": _join,
    "split": _split,
    "points": _points,
    "extend_blades": _extend_blades,
    "blade_norm": _blade_norm,
    "silu": _silu,
    "relu": _relu,
    "blade": _blade,
    "first_blades": _first_blades,
    "blades_to_channels": _blades_to_channels,
    "channels_to_blades": _channels_to_blades,
    "reverse_axes": _reverse_axes,
}


class Relations:
    """The relations of a network: which rows belong to which others."""

    def __init__(
        self, ops: Operations, records: list[dict[str, Any]], places: Mapping[str, Tensor]
    ) -> None:
        self.ops = ops
        self.records = records
        self.places = places
        self.counts: dict[str, Size] = {}
        """The rows of each axis that is known: of inputs, and of relations that begin there."""
        for own in records:
            self.counts.setdefault(str(axis_of(own["from"])), ops.size(places[own["name"]], 0))
        self._shares: dict[tuple[int, str], Tensor] = {}

    def see(self, x: Tensor, axes: Sequence[Any]) -> None:
        """Takes the numbers of rows of an input."""
        for at, axis in enumerate(axes):
            name = axis_of(axis)
            if isinstance(name, str):
                self.counts.setdefault(name, self.ops.size(x, at))

    def gather(self, of: dict[str, Any], x: Tensor) -> Tensor:
        """For each row what it belongs to, less what it belongs to by a second relation."""
        if of["reduction"] != "sum":
            raise _core.UnsupportedError(
                f"export: expected gatherings without factors, got `{of['reduction']}`"
            )
        found = self.ops.take(x, self._of(of["relation"]), 1)
        minus = of.get("minus")
        if minus is None:
            return found
        return self.ops.subtract(found, self.ops.take(x, self._of(minus), 1))

    def segment_sum(self, of: dict[str, Any], x: Tensor) -> Tensor:
        """The sum over the rows of each target, divided as the reduction says."""
        found = self._sum(of["relation"], x)
        minus = of.get("minus")
        if minus is not None:
            found = self.ops.subtract(found, self._sum(minus, x))
        if of["reduction"] == "sum":
            return found
        return self.ops.divide(found, self._divisor(of["relation"], of["reduction"], x))

    def _of(self, number: int) -> Tensor:
        return self.places[self.records[number]["name"]]

    def _sum(self, number: int, x: Tensor) -> Tensor:
        """The sums of ``[blades, rows, channels]`` over rows."""
        ops = self.ops
        blades, channels = ops.size(x, 0), ops.size(x, 2)
        flat = ops.reshape(ops.transpose(x, (1, 0, 2)), [-1, blades * channels])
        sums = ops.scatter(flat, self._of(number), self._count(number))
        return ops.transpose(ops.reshape(sums, [-1, blades, channels]), (1, 0, 2))

    def _count(self, number: int) -> Size:
        """The targets of a relation: the rows of an input, or as many as the relation names."""
        axis = str(axis_of(self.records[number]["to"]))
        if axis not in self.counts:
            self.counts[axis] = self.ops.host.most(self._of(number))
        return self.counts[axis]

    def _divisor(self, number: int, reduction: str, x: Tensor) -> Tensor:
        """What sums are divided by, ``[1, targets, 1]``: the number of rows of a target or its root, at least 1."""
        key = number, reduction
        if key not in self._shares:
            ops = self.ops
            one = ops.slice(ops.slice(x, 0, 0, 1), 2, 0, 1)
            ones = ops.add(ops.multiply(one, np.asarray(0.0)), np.asarray(1.0))
            count = ops.maximum(self._sum(number, ones), np.asarray(1.0))
            self._shares[key] = count if reduction == "mean" else ops.function("sqrt", count)
        return self._shares[key]
