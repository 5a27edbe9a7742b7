"""Blocks and transformers of plain layers in local frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ...._ops import checks
from ..._module import check_count, check_features
from .. import path
from ..described import Description, Given, Networked, Tokens, Variant, run
from ..geometry import GeometryLike
from ..heads import Pair
from ..norm import WithNorms
from ..ragged import as_sequences
from .attention import FrameAttention, FrameCalls
from .change import check_frames, check_vectors, vectors_of
from .components import ComponentLinear, ComponentMLP, ComponentNorm

__all__ = ["FrameBlock", "FrameTransformer"]


@path.stands_for
class FrameBlock(WithNorms):
    """Attention from frame to frame and an MLP of components, each after a layer norm of components and with a residual.

    Args:
        geometry: an algebra without null vectors, such as ``Algebra(1, 3, 0)``.
        channels: vector channels.
        scalars: scalar channels; may be 0.
        attention: arguments of :class:`FrameAttention`, such as ``{"heads": 8}``.
        mlp_ratio: hidden channels of the MLP for each channel.
        dropout: the probability of dropout of components.

    Source: LLoCa (arXiv 2505.20280).

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import FrameBlock
        >>> frames = torch.eye(4).expand(2, 10, 4, 4)
        >>> layer = FrameBlock(Algebra(1, 3, 0), 6, 8, attention={"heads": 2})
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8), frames)
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    norm_names = "norm1", "norm2"
    attention_sees = "frames", "options"
    mlp_sees = ()

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int = 0,
        *,
        attention: Mapping[str, Any] | None = None,
        mlp_ratio: int = 4,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.geometry = own = vectors_of(geometry)
        self.add_norms(lambda _: ComponentNorm(), False, False)
        self.attention = FrameAttention(
            own, channels, scalars, **{"dropout": dropout, **checks.mapping("attention", attention)}
        )
        self.mlp = ComponentMLP(
            own,
            channels,
            scalars,
            ratio=check_features("mlp_ratio", mlp_ratio),
            dropout=dropout,
        )

    def variant(self) -> Variant:
        """The call that the block was made for, without a mask."""
        return self.attention.variant()

    def forward(
        self, vectors: Tensor, scalars: Tensor | None, frames: Tensor, **options: Any
    ) -> Pair:
        """The vectors ``[dim, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` after the block,
        in their frames ``[*batch, items, dim, dim]``. ``options`` are the options of :func:`attend`.
        """
        check_frames(frames, vectors)
        given = Given((vectors, scalars), options=options, frames=frames)
        return run(self, self.geometry, given)


class FrameTransformer(Networked):
    """A transformer of plain layers in local frames: it commutes with all transformations that frames follow.

    Vectors go to the frames of their items. A linear map of components, blocks and another linear map follow there. The vectors of the
    result go back to the frame of all; its scalars are invariant. The frame ``L`` of an item follows a transformation ``T`` if it
    becomes ``L T^-1``, as the frames of :class:`FramePredictor` do.

    Shapes:
        - vectors ``[dim, *batch, items, in_channels]`` to ``[dim, *batch, items, out_channels]``
        - scalars ``[*batch, items, in_scalars]`` to ``[*batch, items, out_scalars]``
        - frames ``[*batch, items, dim, dim]``, which preserve the metric; they have gradients too
        - ragged batches: ``[dim, items, in_channels]`` with ``cu_seqlens``

    Args:
        geometry: an algebra without null vectors, such as ``Algebra(1, 3, 0)``.
        in_channels: vector channels of the input.
        out_channels: vector channels of the output; may be 0.
        hidden_channels: vector channels of the blocks.
        in_scalars, out_scalars, hidden_scalars: scalar channels likewise; each may be 0.
        blocks: how many blocks.
        attention, mlp_ratio, dropout: as for :class:`FrameBlock`.

    >>> import torch, flashcliff
    >>> from flashcliff.nn.transformer import FramePredictor
    >>> spacetime = flashcliff.Algebra(1, 3, 0)
    >>> predict = FramePredictor(2)
    >>> net = FrameTransformer(spacetime, 1, 0, 8, 2, 1, 32, blocks=2, attention={"heads": 4})
    >>> x, scalars = torch.rand(4, 3, 5, 1), torch.randn(3, 5, 2)
    >>> x[0] = 2
    >>> _, found = net(x, scalars, predict(x[..., 0], scalars))
    >>> found.shape
    torch.Size([3, 5, 1])

    Source: LLoCa (arXiv 2505.20280).
    """

    calls_of_layers = FrameCalls

    def __init__(
        self,
        geometry: GeometryLike,
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        in_scalars: int = 0,
        out_scalars: int = 0,
        hidden_scalars: int = 0,
        *,
        blocks: int = 12,
        attention: Mapping[str, Any] | None = None,
        mlp_ratio: int = 4,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.geometry = own = vectors_of(geometry)
        # Known here, since wrappers of the first layer have no such attributes.
        self.in_channels, self.in_scalars = in_channels, in_scalars
        self.linear_in = ComponentLinear(
            own, in_channels, hidden_channels, in_scalars, hidden_scalars
        )
        self.blocks = nn.ModuleList(
            FrameBlock(
                own,
                hidden_channels,
                hidden_scalars,
                attention=attention,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
            )
            for _ in range(check_count("blocks", blocks))
        )
        self.linear_out = ComponentLinear(
            own, hidden_channels, out_channels, hidden_scalars, out_scalars
        )

    def variant(self) -> Variant:
        """The call that the network was made for, without a mask."""
        return Variant((self.in_channels, self.in_scalars), has_frames=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the network to another one."""
        x = network.call(self.linear_in, network.in_frames(x))
        for block in self.blocks:
            x = network.call(block, x, sees=("frames", "options"))
        return network.out_of_frames(network.call(self.linear_out, x))

    def forward(
        self, vectors: Tensor, scalars: Tensor | None, frames: Tensor, **options: Any
    ) -> Pair:
        """From vectors ``[dim, *batch, items, in_channels]``, scalars ``[*batch, items, in_scalars]`` and frames
        ``[*batch, items, dim, dim]`` to ``out_channels`` and ``out_scalars``. ``options`` are the options of :func:`attend`:
        ``mask``, ``is_causal``, ``cu_seqlens``.
        """
        check_vectors("vectors", vectors, self.geometry, self.in_channels)
        check_frames(frames, vectors)
        if options.get("cu_seqlens") is not None:
            # All blocks share them, so they are read once.
            options["cu_seqlens"] = as_sequences("cu_seqlens", options["cu_seqlens"])
        given = Given((vectors, scalars), options=options, frames=frames)
        return run(self, self.geometry, given)
