"""Attention of heads over multivectors and scalars, and rotary positions.

The features of a query and a key are the blades that have a norm, channel by channel, then the features whose products give distances of
points, then the scalars, as in ``flashcliff_network::tokens``. The head is the fastest index of a channel before attention, and the slowest
after it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ... import _core
from ..operations import Operations, Tensor
from .functions import scaled
from .layout import Channels, Rows, Token, channels_of

__all__ = ["attention", "rotary"]

_EPS, _SCALAR_EPS, _JOINT_EPS, _POINT_EPS = 0.01, 1e-5, 0.01, 1e-3
_HIDDEN = -1e30
"""A logit below all that a network computes: the softmax beside it is 0, and it is a number of float32."""


class Part(NamedTuple):
    """The channels of queries, keys or values."""

    multivectors: Tensor | None
    """``[blades, rows, channels, heads]``."""
    scalars: Tensor | None
    """``[rows, scalars, heads]``."""


def _parts(record: dict[str, Any]) -> list[int]:
    """The heads of queries, keys and values."""
    heads = int(record["heads"])
    return [heads, 1, 1] if record["shared"] else [heads, heads, heads]


def _split(ops: Operations, record: dict[str, Any], x: Token, heads: list[int]) -> list[Part]:
    """The parts of tokens, one after another."""
    head = channels_of(record["head"])
    first = Channels(0, 0)
    found = []
    for own in heads:
        last = Channels(first[0] + own * head[0], first[1] + own * head[1])
        mv = s = None
        if head.multivectors:
            mv = ops.slice(x.multivectors, 2, first[0], last[0])
            blades = _blades(record)
            mv = ops.reshape(mv, [blades, -1, head.multivectors, own])
        if head.scalars:
            s = ops.slice(x.scalars, 1, first[1], last[1])
            s = ops.reshape(s, [-1, head.scalars, own])
        found.append(Part(mv, s))
        first = last
    return found


def _blades(record: dict[str, Any]) -> int:
    return len(record["norms"])


def attention(
    ops: Operations,
    geometry: dict[str, Any],
    record: dict[str, Any],
    x: Token,
    context: Token | None,
    mask: Tensor | None,
    log_weights: np.ndarray | None,
    rows: Rows,
    context_rows: Rows | None,
) -> Token:
    """The attended values of all heads."""
    step = _Attention(ops, geometry, record, log_weights)
    heads = _parts(record)
    of_keys = rows if context_rows is None else context_rows
    if context is None:
        query, key, value = _split(ops, step.record, x, heads)
    else:
        (query,) = _split(ops, step.record, x, heads[:1])
        key, value = _split(ops, step.record, context, heads[1:])
    if geometry["head_norm"]:
        query, key, value = map(step.normalised, (query, key, value), heads)
    count, blades = step.count, len(step.norms)
    q = step.by_heads(step.features(query, True), (count, heads[0]), rows, False)
    k = step.by_heads(step.features(key, False), (count, heads[1]), of_keys, True)
    v = step.by_heads(value, (blades, heads[2]), of_keys, False)
    scores = ops.matmul(scaled(ops, q, 1 / math.sqrt(step.width)), k)
    masks = [own for own in (mask, of_keys.seen) if own is not None]
    return step.merged(ops.matmul(_weights(ops, scores, masks), v), rows)


def _weights(ops: Operations, scores: Tensor, masks: list[Tensor]) -> Tensor:
    """The weights of keys for each query. They are 0 where masks hide all keys from a query: a softmax of minus infinity alone is not a
    number, and neither are its gradients."""
    if not masks:
        return ops.softmax(scores)
    for own in masks:
        scores = ops.add(scores, own)
    lowest = np.asarray(_HIDDEN)
    return ops.multiply(ops.softmax(ops.maximum(scores, lowest)), ops.greater(scores, lowest))


class _Attention:
    def __init__(
        self,
        ops: Operations,
        geometry: dict[str, Any],
        record: dict[str, Any],
        log_weights: np.ndarray | None,
    ) -> None:
        self.ops = ops
        self.geometry = geometry
        algebra = _core.Algebra(*geometry["signature"])
        norms, grades = algebra.blade_norms, algebra.blade_grades
        if geometry.get("vectors"):
            norms = [norm for norm, grade in zip(norms, grades, strict=True) if grade == 1]
            grades = [1] * len(norms)
        self.norms, self.grades = norms, grades
        self.record = {**record, "norms": norms}
        self.head = channels_of(record["head"])
        self.heads = int(record["heads"])
        self.weight_blade = len(norms) - 2 if geometry["distances"] else None
        self.coordinates = sum(grade == 1 for grade in grades) - 1
        self.inner = [at for at, norm in enumerate(norms) if norm and at != self.weight_blade]
        self.log_weights = log_weights
        points = 0 if self.weight_blade is None else self.coordinates + 2
        self.count = len(self.inner) + points
        self.width = self.count * self.head.multivectors + self.head.scalars

    # Features.

    def features(self, part: Part, of_query: bool) -> Part:
        """What queries and keys are compared by."""
        if part.multivectors is None:
            return part
        ops, mv = self.ops, part.multivectors
        found = [ops.choose(mv, 0, self.inner)]
        if of_query:
            signs = np.array([float(self.norms[at]) for at in self.inner]).reshape(-1, 1, 1, 1)
            found = [ops.multiply(found[0], signs)] if (signs != 1).any() else found
        if self.weight_blade is not None:
            found += self._points(mv, of_query)
        return part._replace(multivectors=ops.concatenate(found, 0))

    def _points(self, mv: Tensor, of_query: bool) -> list[Tensor]:
        """Features whose products are minus squared distances of points."""
        ops, at = self.ops, self.weight_blade
        assert at is not None
        own = ops.slice(mv, 0, at - self.coordinates, at + 1)
        w = ops.slice(mv, 0, at, at + 1)
        factor = ops.divide(w, ops.add(ops.multiply(w, w), np.asarray(_POINT_EPS)))
        weighed = ops.multiply(own, factor)
        p = ops.slice(weighed, 0, 0, self.coordinates)
        w = ops.slice(weighed, 0, self.coordinates, self.coordinates + 1)
        products, weight = ops.multiply(p, w), ops.multiply(w, w)
        square = ops.sum(ops.multiply(p, p), 0)
        if not of_query:
            return [products, square, weight]
        assert self.log_weights is not None
        logs = self.log_weights.reshape(self.heads, self.head.multivectors)
        factors = np.exp(logs).T[None, None]
        minus = [ops.multiply(own, -factors) for own in (weight, square)]
        return [ops.multiply(products, 2 * factors), *minus]

    # Norms of heads.

    def normalised(self, part: Part, heads: int) -> Part:
        if self.geometry.get("vectors"):
            return self._joint(part, heads)
        ops, (mv, s) = self.ops, part
        if mv is not None:
            mean = scaled(ops, ops.sum(self._magnitudes(mv), 2), 1 / self.head.multivectors)
            root = ops.function("sqrt", ops.maximum(mean, np.asarray(_EPS)))
            mv = ops.divide(mv, root)
        if s is not None:
            count = 1 / self.head.scalars
            s = ops.subtract(s, scaled(ops, ops.sum(s, 1), count))
            variance = scaled(ops, ops.sum(ops.multiply(s, s), 1), count)
            s = ops.divide(s, ops.function("sqrt", ops.add(variance, np.asarray(_SCALAR_EPS))))
        return Part(mv, s)

    def _magnitudes(self, mv: Tensor) -> Tensor:
        """The sum over grades of the magnitudes of squared norms, ``[1, rows, channels, heads]``."""
        ops, total = self.ops, None
        known = [at for at, norm in enumerate(self.norms) if norm]
        for grade in sorted({self.grades[at] for at in known}):
            own = [at for at in known if self.grades[at] == grade]
            chosen = ops.choose(mv, 0, own)
            signs = np.array([float(self.norms[at]) for at in own]).reshape(-1, 1, 1, 1)
            square = ops.sum(ops.multiply(ops.multiply(chosen, chosen), signs), 0)
            if len({*signs.flat}) > 1:
                square = ops.function("abs", square)
            elif signs.flat[0] < 0:
                square = ops.function("negative", square)
            total = square if total is None else ops.add(total, square)
        return total

    def _joint(self, part: Part, heads: int) -> Part:
        """The norm of vectors and scalars together."""
        ops, (mv, s) = self.ops, part
        sums = []
        if mv is not None:
            sums.append(ops.reshape(ops.sum(self._magnitudes(mv), 2), [-1, 1, heads]))
        if s is not None:
            sums.append(ops.sum(ops.multiply(s, s), 1))
        total = sums[0] if len(sums) == 1 else ops.add(*sums)
        mean = scaled(ops, total, 1 / (self.head.multivectors + self.head.scalars))
        root = ops.function("sqrt", ops.add(mean, np.asarray(_JOINT_EPS)))
        return Part(
            None if mv is None else ops.divide(mv, root),
            None if s is None else ops.divide(s, root),
        )

    # Heads apart, and together again.

    def by_heads(self, part: Part, sizes: tuple[int, int], rows: Rows, transposed: bool) -> Tensor:
        """``[samples, heads, items, features]``, or with the last two axes exchanged. ``sizes``: the features of a channel, and heads."""
        ops, (count, heads), (channels, scalars) = self.ops, sizes, self.head
        found = []
        for x, front, axes, width in (
            (part.multivectors, [count], (1, 4, 2, 0, 3), channels),
            (part.scalars, [], (0, 3, 1, 2), scalars),
        ):
            if x is None:
                continue
            x = _of_samples(ops, x, len(front), rows)
            x = ops.reshape(x, [*front, rows.samples, rows.items, width, heads])
            features = math.prod([*front, width])
            last = [rows.items, features]
            if transposed:
                last.reverse()
                axes = (*axes[:2], *axes[3:], axes[2])
            x = ops.transpose(x, axes)
            found.append(ops.reshape(x, [rows.samples, heads, *last]))
        return ops.concatenate(found, 2 if transposed else 3)

    def merged(self, out: Tensor, rows: Rows) -> Token:
        """The attended values as tokens: heads are the slowest index of a channel."""
        ops, (channels, scalars) = self.ops, self.head
        blades = len(self.norms)
        mv = s = None
        width = blades * channels
        if channels:
            own = ops.slice(out, 3, 0, width) if scalars else out
            own = ops.reshape(own, [rows.samples, self.heads, rows.items, blades, channels])
            own = ops.transpose(own, (3, 0, 2, 1, 4))
            mv = ops.reshape(own, [blades, -1, self.heads * channels])
            mv = mv if rows.back is None else ops.take(mv, rows.back, 1)
        if scalars:
            own = ops.slice(out, 3, width, width + scalars) if channels else out
            own = ops.transpose(own, (0, 2, 1, 3))
            s = ops.reshape(own, [-1, self.heads * scalars])
            s = s if rows.back is None else ops.take(s, rows.back, 0)
        return Token(mv, s)


def _of_samples(ops: Operations, x: Tensor, axis: int, rows: Rows) -> Tensor:
    """Rows as the items of samples, with others in the place of those that are not there."""
    return x if rows.places is None else ops.take(x, rows.places, axis)


def rotary(
    ops: Operations, record: dict[str, Any], base: int, x: Token, positions: Tensor
) -> Token:
    """Scalars of queries and keys, turned by their positions ``[rows, 1]``."""
    head, heads = channels_of(record["head"]), _parts(record)
    half = head.scalars // 2
    frequencies = float(base) ** (-2 * np.arange(half) / max(head.scalars, 1))
    found, first = [], 0
    for part, own in enumerate(heads):
        last = first + own * head.scalars
        s = ops.slice(x.scalars, 1, first, last)
        found.append(_turned(ops, s, positions, np.repeat(frequencies, own)) if part < 2 else s)
        first = last
    return x._replace(scalars=ops.concatenate(found, 1))


def _turned(ops: Operations, s: Tensor, positions: Tensor, frequencies: np.ndarray) -> Tensor:
    """Pairs of scalars, a half of all apart, turned by an angle."""
    half = len(frequencies)
    angle = ops.multiply(positions, frequencies[None])
    sine, cosine = ops.function("sin", angle), ops.function("cos", angle)
    a, b = ops.slice(s, 1, 0, half), ops.slice(s, 1, half, 2 * half)
    first = ops.subtract(ops.multiply(a, cosine), ops.multiply(b, sine))
    second = ops.add(ops.multiply(b, cosine), ops.multiply(a, sine))
    return ops.concatenate([first, second], 1)
