"""The geometric bilinear layer: products, and joins, of linear maps."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ... import functional
from ...algebra import Algebra
from . import items, path
from .geometry import Geometry, GeometryLike, constant, geometry_of
from .linear import EquiLinear, Group, together
from .norm import EquiLayerNorm

__all__ = ["GeometricBilinear", "equi_join"]


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
    factors = constant(geometry_of(geometry).join_signs, product).view(-1, *[1] * (product.dim() - 1))
    return product * (factors * reference.to(product.dtype))


def join_factors(geometry: Geometry, like: Tensor, reference: Tensor) -> Tensor:
    """The factors by which the join of multivectors like some differs from the regressive product."""
    signs = constant(geometry.join_signs, like)
    return signs.view(-1, *[1] * (like.dim() - 1)) * reference.to(like.dtype)


class JoinFactors:
    """The factors of joins by a reference, which all blocks of a network share: made once, when a block asks for them."""

    def __init__(self, reference: Tensor) -> None:
        self.reference = reference
        self._made: Tensor | None = None

    @property
    def serves_rows(self) -> bool:
        """Whether all channels of an item have the same factors, which are not differentiated."""
        reference = self.reference
        return not reference.requires_grad and (reference.dim() == 0 or reference.shape[-1] == 1)

    def of_rows(self, geometry: Geometry, like: Tensor) -> Tensor:
        """The factors ``[blades, rows]`` of multivectors like some ``[blades, *batch, channels]``, which is the same kind in
        every call."""
        if self._made is None:
            factors = join_factors(geometry, like, self.reference)
            self._made = factors.expand(*like.shape[:-1], 1).reshape(like.shape[0], -1)
        return self._made


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


@path.stands_for
class GeometricBilinear(nn.Module):
    """Geometric products, and joins, of pairs of linear maps of one input, then a linear map.

    Shapes: multivectors ``[blades, *batch, in_channels]`` to ``[blades, *batch, out_channels]``, scalars
    ``[*batch, in_scalars]`` to ``[*batch, out_scalars]``.

    Args:
        geometry: an algebra, or a :class:`Geometry`, which says whether there are joins and a norm at the end.
        in_channels: multivector channels of the input.
        out_channels: multivector channels of the output.
        hidden_channels: channels of products and joins together; ``out_channels`` by default. With joins it must be
            even.
        in_scalars: scalar channels of the input.
        out_scalars: scalar channels of the output.

    Source: GATr (arXiv 2305.18415, section 3) and L-GATr (arXiv 2405.14806, section 3).
    """

    def __init__(
        self,
        geometry: GeometryLike,
        in_channels: int,
        out_channels: int,
        hidden_channels: int | None = None,
        in_scalars: int = 0,
        out_scalars: int = 0,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.in_channels = in_channels
        hidden = out_channels if hidden_channels is None else hidden_channels
        each = hidden
        if self.geometry.join:
            each = hidden // 2
            if each * 2 != hidden:
                raise ValueError(f"hidden_channels: expected an even number, got {hidden}")

        def linear(initialization: str = "default") -> EquiLinear:
            # Without scalar inputs there is no bias that could start near 1.
            chosen = initialization if in_scalars else "default"
            return EquiLinear(self.geometry, in_channels, each, in_scalars, initialization=chosen)

        self.linear_left = linear()
        self.linear_right = linear("almost_unit_scalar")
        if self.geometry.join:
            self.linear_join_left = linear()
            self.linear_join_right = linear()
        self.linear_out = EquiLinear(self.geometry, hidden, out_channels, in_scalars, out_scalars)
        if self.geometry.product_norm:
            self.norm = EquiLayerNorm(self.geometry)

    def groups(self) -> tuple[Group, Group]:
        """The linear layers, as they are called together: those of the factors, and the last."""
        factors: Group = (self.linear_left, self.linear_right)
        if self.geometry.join:
            factors = (*factors, self.linear_join_left, self.linear_join_right)
        return factors, (self.linear_out,)

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None, reference: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Applies the layer. ``reference`` is that of :func:`equi_join`."""
        factors, _ = self.groups()
        made = [mv for mv, _ in together(factors, multivectors, scalars)]
        if self.geometry.join and reference is None:
            raise ValueError(
                "reference: expected a tensor, because the geometry has joins, got None"
            )
        hidden, scalars = self._products(made, scalars, reference)
        out, out_s = self.linear_out(hidden, scalars)
        return self.norm(out, out_s) if self.geometry.product_norm else (out, out_s)

    def _products(
        self, made: list[Tensor], scalars: Tensor | None, reference: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The products and joins of the factors; the scalars for the last layer."""
        algebra = self.geometry.algebra
        fixed = reference is None or not reference.requires_grad
        if self.geometry.bivectors and fixed and items.serves(algebra, *made, scalars):
            of_join = None
            if reference is not None:
                of_join = join_factors(self.geometry, made[0], reference)
            pairs = list(zip(made[::2], made[1::2]))
            return items.products(algebra, of_join, scalars, pairs, self._composed)

        hidden = self._composed(None, *made[:2])
        if not self.geometry.bivectors:
            kept = tuple(float(grade != 2) for grade in algebra.grades)
            hidden = hidden * constant(kept, hidden).view(-1, *[1] * (hidden.dim() - 1))
        if reference is not None:
            left, right = made[2:]
            join = equi_join(left, right, reference, self.geometry)
            hidden = torch.cat((hidden, join), dim=-1)
        return hidden, scalars

    def _composed(self, of_join: Tensor | None, *factors: Tensor) -> Tensor:
        """The products, by operators that have derivatives."""
        algebra = self.geometry.algebra
        left, right, *more = factors
        product = _product(left, right, algebra, "geometric")
        if of_join is None:
            return product
        left, right = more
        join = _product(left, right, algebra, "regressive")
        return torch.cat((product, join * of_join), -1)
