"""The geometric bilinear layer: products, and joins, of linear maps."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ... import functional
from ..._ops import checks
from ...algebra import Algebra
from .._module import check_count, check_features
from . import path
from .described import Description, Given, Networked, Tokens, Variant, run
from .geometry import GeometryLike, constant, geometry_of
from .linear import EquiLinear, Group, described
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
    wanted = product.shape[1:]
    if not checks.broadcasts(reference.shape, wanted):
        raise ValueError(
            f"reference: expected [*batch, 1] with the batch {list(wanted[:-1])}, or what broadcasts to it, got {list(reference.shape)}"
        )
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


@path.stands_for
class GeometricBilinear(Networked):
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

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import GeometricBilinear
        >>> layer = GeometricBilinear(Algebra(1, 3, 0), 4, 6, in_scalars=8, out_scalars=8)
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 6]), torch.Size([2, 10, 8]))
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
        self.in_channels = check_features("in_channels", in_channels)
        out_channels = check_count("out_channels", out_channels)
        hidden = out_channels if hidden_channels is None else hidden_channels
        hidden = check_count("hidden_channels", hidden)
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

    def _factors(self) -> Group:
        """The linear layers of factors."""
        factors: Group = (self.linear_left, self.linear_right)
        if self.geometry.join:
            factors = (*factors, self.linear_join_left, self.linear_join_right)
        return factors

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None, reference: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """From multivectors ``[blades, *batch, in_channels]`` and scalars ``[*batch, in_scalars]`` to
        ``out_channels`` and ``out_scalars``. ``reference`` is that of :func:`equi_join`.
        """
        given = Given((multivectors, scalars), reference)
        return run(self, self.geometry, given)

    def variant(self) -> Variant:
        """The call that the layer was made for."""
        return Variant((self.in_channels, self.linear_out.in_scalars), has_reference=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network, with the reference of joins of the call."""
        network.reads(self, "geometry")
        factors = described(self._factors(), network, x, keeps_scalars=True)
        out = network.call(self.linear_out, network.products(self.geometry, factors))
        return network.call(self.norm, out) if self.geometry.product_norm else out

    def products(self, factors: Sequence[Tensor], reference: Tensor | None) -> Tensor:
        """The product of two factors, and the join of two more, side by side, in calls of layers."""
        if self.geometry.join and reference is None:
            raise ValueError(
                "reference: expected a tensor, because the geometry has joins, got None"
            )
        found = _product(factors[0], factors[1], self.geometry.algebra, "geometric")
        if not self.geometry.bivectors:
            kept = tuple(float(grade != 2) for grade in self.geometry.algebra.grades)
            found = found * constant(kept, found).view(-1, *[1] * (found.dim() - 1))
        if self.geometry.join and reference is not None:
            join = equi_join(factors[2], factors[3], reference, self.geometry)
            found = torch.cat((found, join), dim=-1)
        return found
