"""Products, and joins, of multivectors side by side."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ... import functional
from ...algebra import Algebra
from .geometry import Geometry, GeometryLike, constant, geometry_of

__all__ = ["equi_join", "products"]


def equi_join(x: Tensor, y: Tensor, reference: Tensor, geometry: GeometryLike) -> Tensor:
    """The join of two multivectors, times the pseudoscalar part of a reference, which makes it commute with
    reflections.

    ``reference[-2] dual(dual(x) ^ dual(y))``, where ``dual`` is the right complement; the outer one differs from the
    regressive product of :func:`flashcliff.functional.product` by ``(-1)^(k (n - k))`` in grade ``k``.

    Shapes:
        - ``x``, ``y`` and the result ``[blades, *batch, channels]``
        - ``reference`` the component of the reference multivector at the product of the vectors that are not null
          (index 14 in Cl(3,0,1)), ``[*batch, 1]`` or any shape that broadcasts to ``[*batch, channels]``

    Source: GATr (arXiv 2305.18415, section 3).
    """
    algebra = geometry_of(geometry).algebra
    product = _product(x, y, algebra, "regressive")
    factors = constant(geometry_of(geometry).join_signs, product).view(
        -1, *[1] * (product.dim() - 1)
    )
    return product * (factors * reference.to(product.dtype))


def _product(x: Tensor, y: Tensor, algebra: Algebra, kind: str) -> Tensor:
    """A product of multivectors of one shape. Where transforms of ``torch.func`` or derivatives in forward mode follow, it is composed
    of operators that have all derivatives; 16 bits on the CPU, for which there is no kernel, are float32 on the way."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return _multiplied(x, y, algebra, kind)
    if x.dtype.itemsize == 2 and x.device.type == "cpu":
        return functional.product(x.float(), y.float(), algebra, kind).to(x.dtype)
    return functional.product(x, y, algebra, kind)


def _multiplied(x: Tensor, y: Tensor, algebra: Algebra, kind: str) -> Tensor:
    blades = algebra.blade_count
    table = constant(_table(algebra, kind), x).view(blades, blades, blades)
    return torch.einsum("cab,a...,b...->c...", table, x, y)


@functools.cache
def _table(algebra: Algebra, kind: str) -> tuple[float, ...]:
    """The numbers ``[output, left, right]`` of a product."""
    count = algebra.blade_count
    found = [0.0] * count**3
    for left, right, output, sign in algebra.terms(kind):
        found[(output * count + left) * count + right] += sign
    return tuple(found)


def products(factors: Sequence[Tensor], geometry: Geometry, reference: Tensor | None) -> Tensor:
    """The product of the first two factors, without bivectors if the geometry has none, and the join of the next two, if it
    has joins, side by side."""
    if geometry.join and reference is None:
        raise ValueError("reference: expected a tensor, because the geometry has joins, got None")
    found = _product(factors[0], factors[1], geometry.algebra, "geometric")
    if not geometry.bivectors:
        kept = tuple(float(grade != 2) for grade in geometry.algebra.grades)
        found = found * constant(kept, found).view(-1, *[1] * (found.dim() - 1))
    if geometry.join and reference is not None:
        found = torch.cat((found, equi_join(factors[2], factors[3], reference, geometry)), dim=-1)
    return found
