"""Operators with matrix products over channels, composed of matrix products of PyTorch and of operators of lanes, whose derivatives are
operators.

Derivatives beyond the first, derivatives in forward mode and transforms of ``torch.func`` use these. Each function takes the algebra, the
options by name and the tensors of the operator, as its row of the table lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from .._derived import table
from ..algebra import Algebra, by_name
from . import derived
from .op import Op

Options = dict[str, Any]


def apply(op: Op, algebra: str, options: Sequence[Any], tensors: Sequence[Tensor | None]) -> Tensor:
    """The output of an operator of :data:`FORMULAS`, composed."""
    named = {option.name: value for option, value in zip(op.options, options)}
    first = tensors[0]
    assert first is not None, "the first tensor is never optional"
    with own_types(first):
        output = FORMULAS[op.name](by_name(algebra), named, *_of_one_type(tensors))
    return output.to(first.dtype)


def own_types(tensor: Tensor) -> torch.autocast:
    """Without autocast on the device of a tensor: the operator's own rules of types hold, not those of matrix products."""
    return torch.autocast(tensor.device.type, enabled=False)


def _of_one_type(tensors: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """Tensors of the widest type among them: parameters may be float32 beside multivectors of 16 bits."""
    types = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(types) == 1:
        return tensors
    widest = reduce(torch.promote_types, types)
    return [None if tensor is None else tensor.to(widest) for tensor in tensors]


def _linear(algebra: Algebra, options: Options, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``mv_linear``: a matrix for each grade."""
    by_grade = weight
    if options["weight_layout"] == "out_in_grade":
        by_grade = weight.movedim((0, 1), (-1, -2)) if options["per_grade"] else weight.t()
    if options["per_grade"]:
        sizes = _sizes(algebra, options["grades"])
        parts = zip(x.split(sizes), by_grade.unbind(0))
        output = torch.cat([part @ matrix for part, matrix in parts])
    else:
        output = x @ by_grade
    if bias is None:
        return output
    if options["bias_mode"] == "every_blade":
        return output + bias
    # The scalar is the first blade.
    return torch.cat([output[:1] + bias, output[1:]])


def _linear_product(
    algebra: Algebra,
    options: Options,
    x: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor,
) -> Tensor:
    """``mv_linear_sgp_norm``: the product of ``x`` with a linear map of it."""
    y = _linear(algebra, options, x, linear_weight, linear_bias)
    grades = options["grades"]
    settings = {**options, "left": grades, "right": grades}
    return _lanes(table.SGP_NORM, algebra, settings, x, y, weight)


def _fully_connected(
    algebra: Algebra, options: Options, x: Tensor, y: Tensor, weight: Tensor
) -> Tensor:
    """``fcgp_norm``: the products of all paths, then a matrix for each path, then the norm."""
    left, right = options["left"], options["right"]
    factor = _gate(options["gate"], x, left) * _gate(options["gate"], y, right)
    plan = _paths(algebra.name, left, right)
    parts: dict[int, list[Tensor]] = {}
    for index, (a, o, b) in enumerate(plan.paths):
        terms = plan.terms[index].to(x)
        product = torch.einsum("oab,anc,bnc->onc", terms, x[plan.left[a]], y[plan.right[b]])
        parts.setdefault(o, []).append((product * factor) @ weight[index])
    reached = sorted(parts)
    summed = {grade: torch.stack(parts[grade]).sum(0) for grade in reached}
    if options["norm"] == "none":
        return torch.cat([summed[grade] for grade in reached])
    first = next(iter(summed.values()))
    sizes = _sizes(algebra, None)
    whole = [
        summed[grade] if grade in summed else first.new_zeros(size, *first.shape[1:])
        for grade, size in enumerate(sizes)
    ]
    settings = {"norm": options["norm"], "eps": options["eps"]}
    normed = _lanes(table.GRADE_RMS, algebra, settings, torch.cat(whole)).split(sizes)
    return torch.cat([normed[grade] for grade in reached])


def _lanes(op: Op, algebra: Algebra, settings: Options, *tensors: Tensor) -> Tensor:
    """An operator of lanes, with derivatives of every order."""
    options = tuple(settings[option.name] for option in op.options)
    of = derived.key(op, algebra.name, op.given(tensors), options)
    return derived.call(of, tensors)[0]


def _gate(gate: str, x: Tensor, grades: Sequence[int] | None) -> Tensor | float:
    """The gate of an operand: of its scalars, or of 0 if it has none."""
    if gate == "none":
        return 1.0
    scalar = x[:1] if grades is None or 0 in grades else x.new_zeros(1, 1, 1)
    return _GATES[gate](scalar)


_GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.special.ndtr,
    "gelu_tanh": lambda x: torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)),
    "silu": torch.sigmoid,
    "gelu_fast": lambda x: torch.sigmoid(1.702 * x),
}


def _sizes(algebra: Algebra, grades: Sequence[int] | None) -> list[int]:
    """The number of blades of each grade."""
    present = range(algebra.grade_count) if grades is None else sorted(grades)
    return [algebra.grades.count(grade) for grade in present]


class _Paths:
    """The paths of a product between grades, and where their operands lie."""

    def __init__(self, algebra: Algebra, left: Any, right: Any) -> None:
        self.paths = algebra.paths_between(left, right)
        self.left = _places(algebra, left)
        self.right = _places(algebra, right)
        first = [algebra.grades.index(grade) for grade in range(algebra.grade_count)]
        sizes = _sizes(algebra, None)
        self.terms = []
        """For each path, the signs ``[output, left, right]`` of its terms."""
        numbers = {path: index for index, path in enumerate(self.paths)}
        for a, o, b in self.paths:
            self.terms.append(torch.zeros(sizes[o], sizes[a], sizes[b], dtype=torch.float64))
        for i, j, k, sign in algebra.terms():
            a, b, o = (algebra.grades[blade] for blade in (i, j, k))
            if (a, o, b) in numbers:
                self.terms[numbers[a, o, b]][k - first[o], i - first[a], j - first[b]] = sign


def _places(algebra: Algebra, grades: Any) -> dict[int, slice]:
    """Where the blades of each grade are in a tensor of some grades."""
    present = range(algebra.grade_count) if grades is None else sorted(grades)
    places, start = {}, 0
    for grade, size in zip(present, _sizes(algebra, grades)):
        places[grade] = slice(start, start + size)
        start += size
    return places


@lru_cache(maxsize=64)
def _paths(algebra: str, left: Any, right: Any) -> _Paths:
    return _Paths(by_name(algebra), left, right)


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "mv_linear": _linear,
    "mv_linear_sgp_norm": _linear_product,
    "fcgp_norm": _fully_connected,
}
"""The operators that are composed, by name."""
