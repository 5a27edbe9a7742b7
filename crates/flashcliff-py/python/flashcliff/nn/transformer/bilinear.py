"""The geometric bilinear layer: products, and joins, of linear maps."""

from __future__ import annotations

from torch import Tensor

from . import path
from .described import Description, Given, Networked, Tokens, Variant, run
from .geometry import GeometryLike, geometry_of
from .linear import EquiLinear, Group, described
from .norm import EquiLayerNorm

__all__ = ["GeometricBilinear"]


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
