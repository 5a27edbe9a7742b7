"""Operators of the table on multivectors ``[blades, rows, channels]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _core
from ..operations import Operations, Tensor
from .layout import Channels
from .program import Program, of_operator, of_record, refused

__all__ = ["Operator"]


class Operator:
    """An operator of a file: a program, or one of those with products of matrices.

    Attributes:
        program: the program, if it is one.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self.signature = tuple(record["signature"])
        self.algebra = _core.Algebra(*self.signature)
        form = record["form"]
        if "program" in form:
            self.name = form["program"]["name"]
            self.settings: dict[str, Any] = {}
            self.program: Program | None = of_record(form["program"])
            return
        named = form["named"]
        self.name, self.settings = named["name"], named["settings"]
        operator = _core.Operator(self.name, self.algebra, _settings(self.settings))
        self.program = of_operator(operator, self.settings)
        if self.program is None and self.name not in _OF_MATRICES:
            raise refused(self.name, "products of matrices")

    def apply(self, ops: Operations, evaluate: Any, tensors: list[Tensor]) -> Tensor:
        """The result for tensors in the order of the operator."""
        if self.program is None:
            return _OF_MATRICES[self.name](self, evaluate, ops, tensors)
        by_kind: dict[str, list[Tensor]] = {"input": [], "parameter": [], "row_value": []}
        for kind, tensor in zip(self.program.arguments, tensors, strict=True):
            by_kind[kind].append(tensor)
        lanes = by_kind["input"]
        parameters = [_known(self.name, own).T[:, None] for own in by_kind["parameter"]]
        counts = Channels(ops.size(lanes[0], 2), 0)
        (found,) = evaluate(ops, self.program, lanes, parameters, None, counts)
        return found

    def like(self, name: str, **settings: Any) -> Operator:
        """Another operator of the table, over the same algebra."""
        named = {"name": name, "settings": settings}
        return Operator({"signature": self.signature, "form": {"named": named}})

    def chosen(self, *names: str) -> dict[str, Any]:
        """Some of the settings."""
        return {name: self.settings[name] for name in names}

    def grades(self, name: str) -> list[int]:
        """The grades of a setting."""
        text = self.settings[name]
        grades = self.algebra.blade_grades
        return sorted(set(grades)) if text == "all" else [int(own) for own in text.split(",")]


def _settings(own: dict[str, Any]) -> dict[str, Any]:
    """Settings as the compiled half takes them: grades are lists."""
    grades = "left", "right", "grades"

    def value(name: str, of: Any) -> Any:
        if name not in grades:
            return of
        return None if of == "all" else [int(grade) for grade in of.split(",")]

    return {name: value(name, of) for name, of in own.items()}


def _known(name: str, x: Tensor) -> np.ndarray:
    if not isinstance(x, np.ndarray):
        raise refused(name, "a parameter that a run gives")
    return x


def _mv_linear(self: Operator, ops: Operations, tensors: list[Tensor]) -> Tensor:
    """``o[m] = sum over n of weight[m, n, grade] x[n] (+ bias[m])``."""
    x, weight, *more = tensors
    weight = _known(self.name, weight)
    if self.settings["weight_layout"] != "out_in_grade":
        weight = weight.transpose()
    own = self.grades("grades")
    grades = [grade for grade in self.algebra.blade_grades if grade in own]
    if self.settings["per_grade"]:
        weight = weight.reshape(*weight.shape[:2], -1)
        stack = np.stack([weight[:, :, own.index(grade)].T for grade in grades])
    else:
        stack = np.broadcast_to(weight.reshape(weight.shape[:2]).T, (len(grades), *weight.T.shape))
    y = ops.matmul(x, stack if len(grades) > 1 else stack[:1])
    bias_mode = self.settings["bias"]
    if bias_mode == "none":
        return y
    bias = _known(self.name, more[0]).reshape(1, 1, -1)
    if bias_mode == "every_blade" or len(grades) == 1:
        return ops.add(y, bias)
    first = ops.add(ops.slice(y, 0, 0, 1), bias)
    return ops.concatenate([first, ops.slice(y, 0, 1, len(grades))], 0)


def _linear_product(
    self: Operator, evaluate: Any, ops: Operations, tensors: list[Tensor]
) -> Tensor:
    """:func:`_mv_linear`, then the product with its input."""
    x, *of_linear, weight = tensors
    grades = {"left": self.settings["grades"], "right": self.settings["grades"]}
    product = self.like("sgp_norm", **self.chosen("gate", "norm", "eps"), **grades)
    return product.apply(ops, evaluate, [x, _mv_linear(self, ops, [x, *of_linear]), weight])


def _fully_connected(
    self: Operator, evaluate: Any, ops: Operations, tensors: list[Tensor]
) -> Tensor:
    """``o[m] = norm(sum over n and paths p of w[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)``."""
    x, y, weight = tensors
    weight, settings = _known(self.name, weight), self.settings
    if settings["gate"] != "none":
        x, y = (
            self.like("gate", gate=settings["gate"], grades=settings[side]).apply(
                ops, evaluate, [own]
            )
            for side, own in (("left", x), ("right", y))
        )
    left, right = self.grades("left"), self.grades("right")
    products = _Products(self.algebra, left, right)
    pairs = ops.multiply(
        ops.choose(x, 0, [pair[0] for pair in products.pairs]),
        ops.choose(y, 0, [pair[1] for pair in products.pairs]),
    )
    flat = ops.reshape(pairs, [len(products.pairs), -1])
    sums = ops.reshape(ops.matmul(products.sums, flat), [len(products.sums), -1, weight.shape[1]])
    made = ops.matmul(sums, weight[products.paths])
    flat = ops.reshape(made, [len(products.paths), -1])
    found = ops.reshape(
        ops.matmul(products.outputs, flat), [len(products.outputs), -1, weight.shape[2]]
    )
    if settings["norm"] == "none":
        return found
    grades = ",".join(map(str, products.grades))
    norm = self.like("grade_rms", **self.chosen("norm", "eps"), grades=grades)
    return norm.apply(ops, evaluate, [found])


class _Products:
    """The geometric product of blades of some grades, path by path.

    Attributes:
        pairs: the blades of both sides, as tensors of their grades have them.
        sums: the sums of signed pairs, one for each path and blade of its grade, ``[sums, pairs]``.
        paths: the path of each sum.
        outputs: the sums that each blade of the result is made of, ``[blades, sums]``.
        grades: the grades of the result.
    """

    def __init__(self, algebra: _core.Algebra, left: list[int], right: list[int]) -> None:
        grades = algebra.blade_grades
        paths = {path: at for at, path in enumerate(algebra.paths(left, right))}
        own, other = (_places(grades, side) for side in (left, right))
        self.grades = algebra.reachable("geometric", left, right)
        out = _places(grades, self.grades)
        self.pairs: list[tuple[int, int]] = []
        sums: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for a, b, c, sign in algebra.terms("geometric"):
            path = paths.get((grades[a], grades[c], grades[b]))
            if path is None or a not in own or b not in other:
                continue
            sums.setdefault((path, out[c]), []).append((len(self.pairs), sign))
            self.pairs.append((own[a], other[b]))
        self.paths = [path for path, _ in sums]
        self.sums = np.zeros((len(sums), len(self.pairs)))
        self.outputs = np.zeros((len(out), len(sums)))
        for at, ((_, blade), terms) in enumerate(sums.items()):
            self.outputs[blade, at] = 1
            for pair, sign in terms:
                self.sums[at, pair] = sign


def _places(grades: list[int], chosen: list[int]) -> dict[int, int]:
    """The place of each blade among the blades of some grades."""
    blades = [blade for blade, grade in enumerate(grades) if grade in chosen]
    return {blade: at for at, blade in enumerate(blades)}


def _map(self: Operator, _: Any, ops: Operations, tensors: list[Tensor]) -> Tensor:
    return _mv_linear(self, ops, tensors)


_OF_MATRICES = {
    "mv_linear": _map,
    "mv_linear_sgp_norm": _linear_product,
    "fcgp_norm": _fully_connected,
}
