"""Scalars beside multivectors, as nodes of a network of messages: linear maps that read invariants, gates, batch norms, logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from torch import nn

from ...algebra import Algebra
from ...operators import Multivector, Operator, PerChannel, Scalar, operator
from ..transformer.described import MessageDescription, Multivectors, Undescribed

__all__ = [
    "batch_norm",
    "beside_invariants",
    "columns_by_grade",
    "gates",
    "invariants_of",
    "parts_of",
    "side_by_side",
    "signed_log",
    "weights",
]

_MOST_PARTS = 8
"""The most parts that a node joins or splits."""
_ROOTS, _STEPS = 10, 3
"""Square roots before the series of a logarithm, and steps of Halley after it."""


def weights(network: MessageDescription, map: Any, start: int) -> tuple[int, int | None, int]:
    """The weight of a linear map of so many channels, its bias if there is one, and the channels of its results.

    Raises:
        Undescribed: the map is another one.
    """
    if type(map) is not nn.Linear or map.in_features != start:
        raise Undescribed(f"scalars are not read by a Linear of {start} channels")
    network.reads(map, "in_features", "out_features")
    bias, out = network.optional(map, "bias", (map.out_features,)), map.out_features
    return network.parameter(map, "weight", (out, start)), bias, out


def parts_of(module: Any, least: int = 1) -> list[Any]:
    """The modules of a ``Sequential`` of so many at least.

    Raises:
        Undescribed: the module is another one.
    """
    if type(module) is not nn.Sequential or len(module) < least:
        raise Undescribed(f"a part is no Sequential of {least} modules or more")
    return list(module)


def side_by_side(network: MessageDescription, *parts: Multivectors) -> Multivectors:
    """The channels of any number of values one after another."""
    value = _joined(network, [own.value for own in parts], 2)
    return parts[0]._replace(value=value, channels=sum(own.channels for own in parts))


def invariants_of(
    network: MessageDescription, invariants: Operator, x: Multivectors
) -> Multivectors:
    """The invariants of multivectors as scalars, grade by grade."""
    value = network.program(invariants, x.value)
    grades = invariants.algebra.grade_count
    parts = _split(network, value, 0, [1] * grades)
    return side_by_side(network, *(Multivectors(own, 1, x.channels) for own in parts))


def columns_by_grade(network: MessageDescription, weight: int, channels: int, grades: int) -> int:
    """A matrix whose columns are channel by channel, with a column for each grade, with its columns grade by grade."""
    of_channels = _split(network, weight, 1, [grades] * channels)
    columns = [_split(network, own, 1, [1] * grades) for own in of_channels]
    return _joined(network, [_joined(network, own, 1) for own in zip(*columns, strict=True)], 1)


def beside_invariants(
    network: MessageDescription,
    map: Any,
    before: Sequence[Multivectors],
    invariants: Multivectors,
    behind: Sequence[Multivectors],
    algebra: Algebra,
) -> Multivectors:
    """A linear map of scalars side by side: some, then invariants, then others."""
    parts = [*before, invariants, *behind]
    sizes = [own.channels for own in parts]
    weight, bias, out = weights(network, map, sum(sizes))
    columns, grades = network.split(weight, 1, sizes), algebra.grade_count
    at = len(before)
    columns[at] = columns_by_grade(network, columns[at], sizes[at] // grades, grades)
    whole = _joined(network, columns, 1)
    return network.linear(algebra, side_by_side(network, *parts), (whole, bias), out)


def gates(
    network: MessageDescription, perceptron: Any, x: Multivectors, s: Multivectors, algebra: Algebra
) -> Multivectors:
    """Multivectors times the sigmoid of a number for each channel and grade, which a perceptron makes of scalars.

    In the network the last weight of the perceptron is ``[channels, grades * scalars]``, and its bias ``[channels, grades]``.
    """
    *first, last = parts_of(perceptron)
    hidden = network.perceptron(first, algebra, s)
    grades, (channels, own) = algebra.grade_count, (x.channels, hidden.channels)
    if type(last) is not nn.Linear or (last.in_features, last.out_features) != (
        own,
        channels * grades,
    ):
        raise Undescribed("gates are not of a Linear to a number for each channel and grade")
    network.reads(last, "in_features", "out_features")
    if last.bias is None:
        raise Undescribed("gates have no bias")
    shape = last.out_features, own
    weight = network.parameter(last, "weight", shape, (channels, grades * own))
    bias = network.parameter(last, "bias", shape[:1], (channels, grades))
    rows = _joined(network, _split(network, weight, 1, [own] * grades), 0)
    logits = network.linear(algebra, hidden, (rows, None), shape[0])
    by_grade = _joined(network, _split(network, logits.value, 2, [channels] * grades), 0)
    return x._replace(value=network.program(_gated(algebra), x.value, by_grade, bias))


def batch_norm(
    network: MessageDescription, norm: Any, algebra: Algebra, s: Multivectors
) -> Multivectors:
    """The batch norm of evaluation, by the statistics of a module, which are parameters of the network.

    Raises:
        Undescribed: the module norms by statistics of batches, as in training, or is another one.
    """
    if type(norm) is not nn.BatchNorm1d or norm.num_features != s.channels or not norm.affine:
        raise Undescribed("scalars are not normed by a BatchNorm1d of their channels, with factors")
    names = "training", "track_running_stats", "num_features", "affine", "eps"
    network.reads(norm, *names)
    if norm.training:
        raise Undescribed(
            "its batch norms are in training, where results depend on the batch; call model.eval() first, for the network of evaluation"
        )
    if norm.running_mean is None or norm.running_var is None:
        raise Undescribed("a batch norm has no running statistics")
    shape = (s.channels,)
    tensors = [network.parameter(norm, name, shape, (*shape, 1)) for name in ("weight", "bias")]
    tensors += [
        network.buffer(norm, name, shape, (*shape, 1)) for name in ("running_mean", "running_var")
    ]
    return s._replace(
        value=network.program(_batch_norm(algebra, float(norm.eps)), s.value, *tensors)
    )


def signed_log(network: MessageDescription, algebra: Algebra, s: Multivectors) -> Multivectors:
    """``sign(s) log(|s| + 1)`` of scalars."""
    return s._replace(value=network.program(_signed_log(algebra), s.value))


def _joined(network: MessageDescription, parts: Sequence[int], axis: int) -> int:
    """Any number of values one after another."""
    while len(parts) > 1:
        chunks = [parts[at : at + _MOST_PARTS] for at in range(0, len(parts), _MOST_PARTS)]
        parts = [network.join(own, axis) for own in chunks]
    return parts[0]


def _split(network: MessageDescription, value: int, axis: int, sizes: Sequence[int]) -> list[int]:
    """Any number of parts of a value."""
    if len(sizes) == 1:
        return [value]
    if len(sizes) <= _MOST_PARTS:
        return network.split(value, axis, sizes)
    each = -(-len(sizes) // _MOST_PARTS)
    chunks = [sizes[at : at + each] for at in range(0, len(sizes), each)]
    parts = network.split(value, axis, [sum(own) for own in chunks])
    pairs = zip(parts, chunks, strict=True)
    return [made for part, own in pairs for made in _split(network, part, axis, own)]


@lru_cache
def _gated(algebra: Algebra) -> Operator:
    def gated(x: Any, logits: Any, bias: Any) -> Any:
        # A number for each grade is as many as a scalar and a vector have.
        pairs = zip(logits._values, bias, strict=True)
        factors = [(Scalar(x._program, logit) + own).sigmoid() for logit, own in pairs]
        first, *others = (x.grade(grade) * factor for grade, factor in enumerate(factors))
        return sum(others, first)

    kinds = Multivector, Multivector.of(0, 1), PerChannel(algebra.grade_count)
    return _made(gated, algebra, kinds)


@lru_cache
def _batch_norm(algebra: Algebra, eps: float) -> Operator:
    def batch_norm(s: Any, weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return weight * ((s.scalar - mean) / (variance + eps).sqrt()) + bias

    kinds = Multivector.of(0), *[PerChannel] * 4
    return _made(batch_norm, algebra, kinds)


@lru_cache
def _signed_log(algebra: Algebra) -> Operator:
    """Programs have no logarithm. Steps of Halley solve ``exp(y) = x``, each with the cube of the error of the one before: they add twice
    ``(x - exp(y)) / (x + exp(y))``, in terms of sigmoids. They begin with a series of the logarithm of a root of ``x``."""

    def signed_log(s: Any) -> Any:
        of = s.scalar
        x = root = of.maximum(-of) + 1.0
        for _ in range(_ROOTS):
            root = root.sqrt()
        t = (root - 1.0) / (root + 1.0)
        square = t * t
        y = 2.0 ** (_ROOTS + 1) * t * (1.0 + square * (1 / 3 + square / 5.0))
        for _ in range(_STEPS):
            ours, theirs = x * (-y).sigmoid(), y.sigmoid()
            y = y + 2.0 * ((ours - theirs) / (ours + theirs))
        # A scalar of 0 has the gradient 0, as that of its sign by PyTorch.
        return of.where_positive(y, (-of).where_positive(-y, 0.0))

    return _made(signed_log, algebra, [Multivector.of(0)])


def _made(function: Any, algebra: Algebra, kinds: Sequence[Any]) -> Operator:
    """The operator of a function, whose annotations depend on the algebra."""
    function.__annotations__ = dict(zip(function.__annotations__, kinds, strict=False))
    return operator(algebra)(function)
