"""Equivariant linear layers, as products of matrices for each blade.

A map of the group is a matrix of few signs over blades. In most algebras a blade is made of at most two blades. So a layer is a product of
a stack of matrices with these side by side, ``[blades, rows, 2 in] [blades, 2 in, out]``, and not a product with a large matrix of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import _core
from ..operations import Operations, Tensor
from .layout import Channels, Token, channels_of

__all__ = ["linear"]

Map = tuple[list[tuple[int, int, int]], float]
"""The entries of a map: blades of the result and of the input, with a sign; and a factor."""


def linear(
    ops: Operations,
    geometry: dict[str, Any],
    record: dict[str, Any],
    x: Token,
    parameters: np.ndarray,
    keeps_scalars: bool,
) -> Token:
    """The layers of a node, whose outputs lie side by side."""
    own = channels_of(record["input"])
    if keeps_scalars:
        made = Channels(sum(record["layers"]), 0)
    else:
        layers = [channels_of(layer) for layer in record["layers"]]
        made = Channels(sum(c[0] for c in layers), sum(c[1] for c in layers))
    layer = _Layer(ops, geometry, own, made, record["biased"], parameters)
    found = Token(layer.multivectors(x), layer.scalars(x))
    return found._replace(scalars=x.scalars) if keeps_scalars else found


def maps_of(geometry: dict[str, Any]) -> tuple[list[Map], int]:
    """The maps that commute with the group of a geometry, and the number of blades."""
    algebra = _core.Algebra(*geometry["signature"])
    maps = algebra.equivariant_maps(geometry["group"])
    grades = algebra.blade_grades
    blades, first = len(grades), 0
    if geometry.get("vectors"):
        maps = [own for own in maps if own[:2] == (1, 1)]
        blades, first = grades.count(1), grades.index(1)
    found = []
    for _, _, entries in maps:
        factor = 1 / math.sqrt(len(entries)) if geometry["unit_maps"] else 1.0
        found.append(([(to - first, of - first, sign) for to, of, sign in entries], factor))
    return found, blades


class _Layer:
    """All layers of a node as one."""

    def __init__(
        self,
        ops: Operations,
        geometry: dict[str, Any],
        own: Channels,
        made: Channels,
        biased: bool,
        parameters: np.ndarray,
    ) -> None:
        self.ops, self.own, self.made = ops, own, made
        self.maps, self.blades = maps_of(geometry)
        invariant = [] if geometry.get("vectors") else [0]
        if invariant and geometry["group"] == "spin":
            invariant.append(self.blades - 1)
        self.invariant = invariant
        count = len(invariant)
        with_scalars = count > 0 and own.scalars > 0
        shapes: dict[str, tuple[int, ...]] = {
            "weight": (made.multivectors, own.multivectors, len(self.maps)),
            "s2mvs": (made.multivectors, count, own.scalars) if with_scalars else (0,),
            "bias": (made.multivectors, count if with_scalars else 1) if biased and count else (0,),
            "mvs2s": (made.scalars, own.multivectors, count),
            "scalar_bias": (made.scalars,) if biased else (0,),
            "s2s": (made.scalars, own.scalars),
        }
        self.parameters: dict[str, np.ndarray] = {}
        first = 0
        for name, shape in shapes.items():
            size = math.prod(shape)
            self.parameters[name] = parameters[first : first + size].reshape(shape)
            first += size
        assert first == parameters.size, "a linear layer has other parameters"

    def multivectors(self, x: Token) -> Tensor | None:
        """The multivectors of all layers. Blades that scalars are added to are made apart, so that the others are written once."""
        if self.made.multivectors == 0:
            return None
        onto = {blade: self._onto(k, x.scalars) for k, blade in enumerate(self.invariant)}
        apart = [blade for blade, own in onto.items() if own is not None]
        if x.multivectors is None:
            return self._of_scalars({blade: onto[blade] for blade in apart})
        terms, parts, first = self._terms(), [], 0
        for blade in (*apart, self.blades):
            if blade > first:
                parts.append(self._mapped(x.multivectors, terms[first:blade]))
            if blade < self.blades:
                own = self._mapped(x.multivectors, terms[blade : blade + 1])
                parts.append(self.ops.add(own, onto[blade]))
            first = blade + 1
        return self.ops.concatenate(parts, 0)

    def _terms(self) -> list[list[tuple[int, np.ndarray]]]:
        """For each blade of the result the blades that it is made of, with their matrices."""
        weight = self.parameters["weight"]
        terms: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(self.blades)]
        for number, (entries, factor) in enumerate(self.maps):
            matrix = weight[:, :, number].T * factor
            for to, of, sign in entries:
                terms[to].append((of, matrix * sign))
        return terms

    def _mapped(self, x: Tensor, terms: Sequence[list[tuple[int, np.ndarray]]]) -> Tensor:
        """Blades of the result: one product, of the channels of the blades that each is made of side by side."""
        zero = np.zeros((self.own.multivectors, self.made.multivectors))
        parts, matrices = [], []
        for at in range(max(map(len, terms))):
            chosen = [own[at] if at < len(own) else (own[0][0], zero) for own in terms]
            parts.append(self.ops.choose(x, 0, [of for of, _ in chosen]))
            matrices.append(np.stack([own for _, own in chosen]))
        return self.ops.matmul(self.ops.concatenate(parts, 2), np.concatenate(matrices, 1))

    def _onto(self, k: int, s: Tensor | None) -> Tensor | None:
        """What is added to an invariant blade, ``[rows, channels]`` or ``[1, channels]``."""
        weight, bias = self.parameters["s2mvs"], self.parameters["bias"]
        found = None
        if weight.size and s is not None:
            found = self.ops.matmul(s, weight[:, k].T)
        if bias.size and k < bias.shape[1]:
            own = bias[:, k][None]
            found = own if found is None else self.ops.add(found, own)
        return found

    def _of_scalars(self, onto: dict[int, Tensor]) -> Tensor:
        """Multivectors that are made of scalars alone."""
        total = None
        for blade, own in onto.items():
            place = np.zeros((self.blades, 1, 1))
            place[blade] = 1
            part = self.ops.multiply(self.ops.reshape(own, [1, -1, self.made.multivectors]), place)
            total = part if total is None else self.ops.add(total, part)
        return total

    def scalars(self, x: Token) -> Tensor | None:
        if self.made.scalars == 0:
            return None
        total = None
        ways = [(x.scalars, self.parameters["s2s"])]
        for k, blade in enumerate(self.invariant):
            if x.multivectors is not None:
                own = self.ops.slice(x.multivectors, 0, blade, blade + 1)
                own = self.ops.reshape(own, [-1, self.own.multivectors])
                ways.append((own, self.parameters["mvs2s"][:, :, k]))
        for of, weight in ways:
            if of is not None and weight.size:
                part = self.ops.matmul(of, weight.T)
                total = part if total is None else self.ops.add(total, part)
        bias = self.parameters["scalar_bias"]
        assert total is not None, "a linear layer without inputs"
        return self.ops.add(total, bias[None]) if bias.size else total
