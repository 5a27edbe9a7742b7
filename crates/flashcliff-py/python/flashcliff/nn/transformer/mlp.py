"""The MLP of multivectors: a bilinear layer, gates and linear layers."""

from __future__ import annotations

from torch import Tensor, nn

from ..._ops import checks
from . import path
from .bilinear import GeometricBilinear
from .described import Description, Given, Networked, Tokens, Variant, run
from .gate import GradeDropout, ScalarGate
from .geometry import GeometryLike, geometry_of
from .heads import Pair
from .linear import EquiLinear

__all__ = ["GeometricMLP"]


@path.stands_for
class GeometricMLP(Networked):
    """A bilinear layer, then gates and linear layers.

    Shapes: multivectors ``[blades, *batch, channels[0]]`` to ``[blades, *batch, channels[-1]]``, scalars likewise.

    Args:
        geometry: an algebra, or a :class:`Geometry`. Without ``geometry.product`` the first layer is a gate and a
            linear map.
        channels: multivector channels before and after each layer. One number is an MLP without layers.
        scalars: scalar channels, as many numbers.
        activation: the activation of gates, see :class:`ScalarGate`.
        scalar_activation: the activation of scalars.
        dropout: probability of :class:`GradeDropout` after each layer.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import GeometricMLP
        >>> layer = GeometricMLP(Algebra(1, 3, 0), (4, 8, 4), (8, 16, 8))
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    def __init__(
        self,
        geometry: GeometryLike,
        channels: tuple[int, ...],
        scalars: tuple[int, ...],
        *,
        activation: str = "gelu_tanh",
        scalar_activation: str | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        channels = checks.integers("channels", channels)
        scalars = checks.integers("scalars", scalars)
        if not channels or len(channels) != len(scalars):
            raise ValueError(
                f"channels: expected one or more numbers, and as many scalars, got {channels} and {scalars}"
            )
        self._input = channels[0], scalars[0]
        layers: list[nn.Module] = []

        def gate() -> ScalarGate:
            return ScalarGate(activation, scalar_activation)

        # Layers without a gate have no activation that could be wrong.
        gate()
        sizes = list(zip(channels[:-1], channels[1:], scalars[:-1], scalars[1:], strict=True))
        for at, (before, after, before_s, after_s) in enumerate(sizes):
            if at == 0 and self.geometry.product:
                bilinear = GeometricBilinear(
                    self.geometry, before, after, in_scalars=before_s, out_scalars=after_s
                )
                layers.append(bilinear)
            else:
                layers += [gate(), EquiLinear(self.geometry, before, after, before_s, after_s)]
            if dropout is not None:
                layers.append(GradeDropout(self.geometry, dropout))
        self.layers = nn.ModuleList(layers)

    def variant(self) -> Variant:
        """The call that the layers were made for."""
        return Variant(self._input, has_reference=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layers to a network."""
        for at, layer in enumerate(self.layers):
            sees: tuple[str, ...] = ()
            if isinstance(layer, GeometricBilinear):
                sees = ("reference",)
            elif at == 0 and self.geometry.product:
                # A module in the place of the first layer, such as a wrapper, is given what the layer would be given.
                sees = ("known_reference",)
            x = network.call(layer, x, sees=sees)
        return x

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None, reference: Tensor | None = None
    ) -> Pair:
        """From multivectors ``[blades, *batch, channels[0]]`` and scalars ``[*batch, scalars[0]]`` to the last of
        both; ``reference`` is that of the join.
        """
        given = Given((multivectors, scalars), reference)
        return run(self, self.geometry, given)
