"""A block that attends to another set: it pools many items into few, and takes few back to many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..._ops import checks
from . import path
from .block import mlp_of
from .described import Description, Given, Tokens, Variant, run
from .geometry import GeometryLike, geometry_of
from .heads import CrossAttention, Pair
from .norm import EquiLayerNorm, WithNorms

__all__ = ["CrossBlock"]


@path.stands_for
class CrossBlock(WithNorms):
    """Cross-attention to another set and an MLP, each after a norm and with a residual, as in LaB-GATr.

    Tokens that attend to all items pool them. They are items that were sampled from the set, or learned tokens. If the network is
    to commute with the group, the only components of learned tokens are invariants and scalars. A second block, in which items
    attend to tokens, is the way back.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels.
        scalars: scalar channels.
        other_channels: multivector channels of the other set.
        other_scalars: scalar channels of the other set.
        attention: arguments of :class:`CrossAttention`.
        mlp_ratio, mlp_layers, affine, activation, scalar_activation, dropout: as for :class:`Block`.

    >>> import torch, flashcliff
    >>> from flashcliff.nn.transformer import join_reference
    >>> pga = flashcliff.Algebra(3, 0, 1)
    >>> pool = CrossBlock(pga, 8, 16, 8, 16, attention={"heads": 2})
    >>> points, scalars = torch.randn(16, 2, 1000, 8), torch.randn(2, 1000, 16)
    >>> some = torch.arange(0, 1000, 50)
    >>> few = points[..., some, :], points, scalars[:, some], scalars
    >>> mv, s = pool(*few, join_reference(points))
    >>> mv.shape, s.shape
    (torch.Size([16, 2, 20, 8]), torch.Size([2, 20, 16]))

    Source: LaB-GATr (arXiv 2403.07536).
    """

    norm_names = "norm1", "norm2", "norm_cond"

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int,
        other_channels: int,
        other_scalars: int,
        *,
        attention: Mapping[str, Any] | None = None,
        mlp_ratio: int = 2,
        mlp_layers: int = 2,
        affine: bool = False,
        activation: str = "gelu_tanh",
        scalar_activation: str | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.geometry = own = geometry_of(geometry)

        def norm(name: str) -> EquiLayerNorm:
            sizes = (other_channels, other_scalars) if name == "norm_cond" else (channels, scalars)
            return EquiLayerNorm(own, *sizes, affine=affine)

        self.add_norms(norm, False, affine)
        sizes = channels, scalars, other_channels, other_scalars
        self.crossattention = CrossAttention(
            own, *sizes, **{"dropout": dropout, **checks.mapping("attention", attention)}
        )
        self.mlp = mlp_of(
            own, channels, scalars, mlp_ratio, mlp_layers, activation, scalar_activation, dropout
        )

    def forward(
        self,
        multivectors: Tensor,
        other_multivectors: Tensor,
        scalars: Tensor | None = None,
        other_scalars: Tensor | None = None,
        reference: Tensor | None = None,
        **options: Any,
    ) -> Pair:
        """The multivectors ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` that
        attended to others ``[blades, *batch, others, other_channels]`` and ``[*batch, others, other_scalars]``, in
        the shapes of the former. ``reference`` is the reference of joins, for the items; ``options`` are the options of
        :func:`attend`.
        """
        own = {name: options[name] for name in ("cu_seqlens",) if name in options}
        given = Given(
            (multivectors, scalars),
            reference,
            context=(other_multivectors, other_scalars),
            options=own,
            context_options=options,
        )
        return run(self, self.geometry, given)

    def variant(self) -> Variant:
        """The call that the block was made for, without a mask."""
        return self.crossattention.variant()._replace(has_reference=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the block to a network."""
        network.reads(self, "norm_names")
        first, second, of_others = self.norms()
        others = network.call(of_others, network.context())
        x = network.sum(x, self._crossed(network, x, others, first))
        return network.sum(x, self._transformed(network, x, second))
