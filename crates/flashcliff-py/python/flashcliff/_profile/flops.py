"""Floating-point operations of operators, counted from the terms of their algebra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from .._ops.op import Made, operator
from ..algebra import Algebra, by_name


class Call(NamedTuple):
    """The sizes of a call."""

    made: Made
    batch: int
    inputs: int
    """Channels of the input."""
    outputs: int
    wanted: tuple[bool, ...]
    """Which gradients a backward pass computes, of the inputs that are given."""


class Product(NamedTuple):
    """A product of two multivectors in one lane."""

    terms: int
    outputs: int
    """Blades of the result."""
    pieces: int
    """Pairs of a path and a blade of the result that it reaches."""
    left: int
    """Blades of the left operand."""
    right: int


def forward(call: Call) -> int:
    """The operations of a forward pass."""
    return _lanes(call) + _matrix_products(call)


def backward(call: Call) -> int:
    """The operations of a backward pass: as many for each gradient of a product as for the product. Gates and norms are
    computed again, and their derivatives cost twice as much."""
    count = sum(call.wanted)
    name = call.made.op.name
    if name == "mv_linear":
        return count * _matrix_products(call)
    if name in _PRODUCTS:
        lanes = call.batch * call.inputs
        around = (
            _around(call.made) * call.batch * (call.inputs if name != "fcgp_norm" else call.outputs)
        )
        of_product = _product_flops(call.made) * lanes
        return count * (of_product + _matrix_products(call)) + 3 * around
    return _counted(call)[1]


_PRODUCTS = frozenset(
    ("sgp_norm", "fcgp_norm", "mv_linear_sgp_norm", "steerable_product", "product", "sandwich")
)
"""Operators whose terms are counted here, by the paths of their weights. The compiled half counts all others from their programs."""


def _counted(call: Call) -> tuple[int, int]:
    """The operations of both passes, as the kernels do them."""
    return operator(*call.made).flops(call.batch, call.inputs, call.outputs)


def _lanes(call: Call) -> int:
    """The operations without matrix products."""
    made = call.made
    lanes = call.batch * call.inputs
    name = made.op.name
    if name == "mv_linear":
        return 0
    if name == "fcgp_norm":
        around = _around(made)
        return lanes * _product_flops(made) + call.batch * call.outputs * around
    if name in _PRODUCTS:
        # Channels of the product are those of the linear map's output, if there is one.
        channels = call.outputs if name == "mv_linear_sgp_norm" else call.inputs
        return call.batch * channels * (_product_flops(made) + _around(made))
    return _counted(call)[0]


def _matrix_products(call: Call) -> int:
    """The operations of matrix products over channels."""
    made = call.made
    name = made.op.name
    pairs = 2 * call.batch * call.inputs * call.outputs
    if name == "fcgp_norm":
        return pairs * _product(made).pieces
    if name in ("mv_linear", "mv_linear_sgp_norm"):
        algebra = by_name(made.algebra)
        return pairs * len(algebra.blades_of(_options(made).get("grades")))
    return 0


def _around(made: Made) -> int:
    """The operations of gates and norm in a lane."""
    options, product = _options(made), _product(made)
    name = made.op.name
    gates = 2 + product.left + product.right if options.get("gate", "none") != "none" else 0
    norm = 3 * product.outputs if options.get("norm", "none") != "none" else 0
    if name == "steerable_product":
        # The norm of `r`, and the sum with `l`.
        settings = dict(zip(made.op.names, made.given))
        norm = 3 * product.right * settings["a"] + product.outputs * settings["l"]
    return gates + norm


def _product_flops(made: Made) -> int:
    """The operations of the product in a lane, with its path weights."""
    product = _product(made)
    name = made.op.name
    if name == "product":
        return 2 * product.terms - product.outputs
    if name == "sandwich":
        return 2 * product.terms
    if name == "fcgp_norm":
        # The matrix product has the weights and adds the paths.
        return 2 * product.terms - product.pieces
    return 2 * product.terms + product.pieces - product.outputs


def _options(made: Made) -> dict[str, Any]:
    return {option.name: value for option, value in zip(made.op.options, made.options)}


@lru_cache(maxsize=256)
def _product(made: Made) -> Product:
    options = _options(made)
    algebra = by_name(made.algebra)
    if made.op.name == "sandwich":
        return _sandwich(algebra, options["left"], options["right"], operator(*made).output[0])
    grades = options.get("grades")
    left, right = options.get("left", grades), options.get("right", grades)
    return _count(algebra, options.get("kind", "geometric"), left, right)


def _count(
    algebra: Algebra, kind: str, left: Iterable[int] | None, right: Iterable[int] | None
) -> Product:
    ours, theirs = set(algebra.blades_of(left)), set(algebra.blades_of(right))
    grades = algebra.grades
    found = [(a, b, o) for a, b, o, _ in algebra.terms(kind) if a in ours and b in theirs]
    pieces = Counter((grades[a], grades[b], o) for a, b, o in found)
    return Product(len(found), len({o for _, _, o in found}), len(pieces), len(ours), len(theirs))


def _sandwich(
    algebra: Algebra,
    left: Iterable[int] | None,
    right: Iterable[int] | None,
    outputs: int | str,
) -> Product:
    """Two products. Where the result has as many blades as the inner operand, it has the same ones, as others cancel."""
    outer, inner = algebra.blades_of(left), algebra.blades_of(right)
    terms = algebra.terms("geometric")
    first = [term for term in terms if term[0] in outer and term[1] in inner]
    between = {term[2] for term in first}
    second = [t for t in terms if t[0] in between and t[1] in outer]
    if outputs == len(inner):
        second = [term for term in second if term[2] in inner]
    reached = {term[2] for term in second}
    terms_of_both = len(first) + len(second)
    return Product(terms_of_both, len(reached), len(second), len(outer), len(inner))
