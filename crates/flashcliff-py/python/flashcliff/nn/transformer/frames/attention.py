"""Attention from frame to frame."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...._ops import checks
from .. import path
from ..attention import GeometricAttention
from ..described import Calls, Description, Given, Networked, Tokens, Variant, run
from ..geometry import GeometryLike
from ..heads import Heads, Pair
from .change import check_frames, check_vectors, from_frames, to_frames, vectors_of
from .components import ComponentDropout, ComponentLinear

__all__ = ["FrameAttention"]


class FrameCalls(Calls):
    """The calls of layers for items with frames."""

    def in_frames(self, x: Any) -> Pair:
        """Items in their frames."""
        return to_frames(x[0], self._frames), x[1]

    def out_of_frames(self, x: Any) -> Pair:
        """Items that are in their frames, in the frame of all."""
        return from_frames(x[0], self._frames, self.owner.geometry), x[1]

    @property
    def _frames(self) -> Tensor:
        assert self.given.frames is not None
        return self.given.frames


@path.stands_for
class FrameAttention(Networked):
    """Multi-head self-attention of items, each in its own frame.

    Queries, keys and values are plain linear maps of the components of an item. They go from its frame to the frame of all, where
    vectors are compared by the inner product of the algebra. What an item attends to comes back to its own frame: each item sees the
    vectors that others send in its own frame.

    Shapes: vectors ``[dim, *batch, items, channels]`` and scalars ``[*batch, items, scalars]``, both in the frames of their items, and
    frames ``[*batch, items, dim, dim]``; the output is in these frames too.

    Args:
        geometry: an algebra without null vectors, such as ``Algebra(1, 3, 0)``.
        channels: vector channels.
        scalars: scalar channels; may be 0.
        heads: heads.
        ratio: the heads have ``ratio * channels // heads`` vector channels, at least 1 each, and ``ratio * scalars // heads``
            scalars, at least 4.
        multi_query: whether all heads share keys and values.
        bias: whether the maps to queries, keys and values have biases.
        dropout: the probability of dropout of components of the output.

    Source: LLoCa (arXiv 2505.20280, section 3).

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import FrameAttention
        >>> frames = torch.eye(4).expand(2, 10, 4, 4)
        >>> layer = FrameAttention(Algebra(1, 3, 0), 6, 8, heads=2)
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8), frames)
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    calls_of_layers = FrameCalls

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int = 0,
        *,
        heads: int = 8,
        ratio: int = 1,
        multi_query: bool = False,
        bias: bool = True,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.geometry = own = vectors_of(geometry)
        self.channels, self.scalars = channels, scalars
        sizes = self._sizes = Heads(own, channels, scalars, heads, ratio, False)
        self._heads = heads, *[1 if checks.flag("multi_query", multi_query) else heads] * 2
        parts = sum(self._heads)
        one, one_s = sizes.channels, sizes.scalars
        self.in_linear = ComponentLinear(
            own, channels, parts * one, scalars, parts * one_s, bias=bias
        )
        self.out_linear = ComponentLinear(own, heads * one, channels, heads * one_s, scalars)
        self.attention = GeometricAttention(own, one, heads)
        self.dropout = None if dropout is None else ComponentDropout(own, dropout)

    def variant(self) -> Variant:
        """The call that the layer was made for, without a mask."""
        return Variant((self.channels, self.scalars), has_frames=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network."""
        network.reads(self, "_sizes", "_heads", "dropout")
        x = network.out_of_frames(network.call(self.in_linear, x))
        shared = self._heads[1] != self._heads[0]
        x = self._sizes.describe(network, self.attention, x, shared=shared)
        x = network.call(self.out_linear, network.in_frames(x))
        return x if self.dropout is None else network.call(self.dropout, x)

    def forward(
        self, vectors: Tensor, scalars: Tensor | None, frames: Tensor, **options: object
    ) -> Pair:
        """The vectors ``[dim, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` after attention,
        in the same shapes; frames are ``[*batch, items, dim, dim]``. ``options`` are the options of :func:`attend`:
        ``mask``, ``is_causal``, ``cu_seqlens``.
        """
        check_vectors("vectors", vectors, self.geometry, self.channels)
        check_frames(frames, vectors)
        given = Given((vectors, scalars), options=options, frames=frames)
        return run(self, self.geometry, given)
