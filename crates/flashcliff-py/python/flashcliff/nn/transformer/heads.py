"""Self-attention and cross-attention: projections to heads, attention, projection back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..._ops import checks
from .._module import check_count, check_features
from . import path
from .attention import GeometricAttention, Pair
from .described import Calls, Description, Given, Networked, Tokens, Undescribed, Variant, run
from .gate import GradeDropout
from .geometry import Geometry, GeometryLike, geometry_of
from .linear import EquiLinear, Group, described
from .norm import equi_layer_norm, scalar_layer_norm
from .rotary import RotaryEncoding

__all__ = ["CrossAttention", "Pair", "SelfAttention"]


class Heads:
    """The sizes of heads, and how channels split into them: the head is the fastest index."""

    def __init__(
        self, geometry: Geometry, channels: int, scalars: int, heads: int, ratio: int, rotary: bool
    ) -> None:
        self.geometry = geometry
        self.count = check_features("heads", heads)
        ratio = check_features("ratio", ratio)
        self.channels = max(ratio * check_features("channels", channels) // heads, 1)
        self.scalars = max(ratio * check_count("scalars", scalars) // heads, 4) if scalars else 0
        if rotary:
            self.scalars = max((self.scalars + 1) // 2 * 2, 8)

    def describe(
        self,
        network: Description,
        attention: nn.Module,
        projected: Tokens,
        context: Tokens | None = None,
        *,
        shared: bool,
        positions: nn.Module | None = None,
    ) -> Tokens:
        """Adds the attention of projections to a network."""
        if isinstance(network, Calls):
            return self._attended(network, attention, projected, context, shared, positions)
        rotary_base = None
        if positions is not None:
            if type(positions) is not RotaryEncoding:
                raise Undescribed(f"positions are of the class {type(positions).__name__}")
            rotary_base = positions.described_base(network, self.scalars)
        if type(attention) is not GeometricAttention or attention.heads != self.count:
            raise Undescribed("attention has other heads than its projections, or is of another class")
        head, head_norm = (self.channels, self.scalars), self.geometry.head_norm
        if rotary_base is not None and head_norm:
            raise Undescribed("heads have a norm and rotary positions")
        for side, made in zip(self._sides(shared, context), (projected, context)):
            if made is None or made.channels != (sum(side) * head[0], sum(side) * head[1]):
                raise Undescribed("projections have other channels than the heads")
        return attention.describe(
            network,
            projected,
            context,
            head,
            shared=shared,
            head_norm=head_norm,
            rotary_base=rotary_base,
        )

    def _attended(
        self,
        network: Calls,
        attention: nn.Module,
        projected: Any,
        context: Any,
        shared: bool,
        positions: nn.Module | None,
    ) -> Any:
        """The attention of projections, by its call. A projection is the result of one linear layer, or of more, one after another."""
        # A wrapper of a projection does not say so.
        shared = shared or len(projected) > 2
        parts: list[Pair] = []
        for side, made in zip(self._sides(shared, context), (projected, context)):
            assert made is not None
            parts += self._parts(side, made)
        if positions is not None:
            parts[:2] = [(mv, positions(s)) for mv, s in parts[:2]]
        given = network.given
        return attention(*parts, **(given.options if context is None else given.context_options))

    def _sides(self, shared: bool, context: object) -> list[list[int]]:
        """The heads of queries, keys and values, by what they are projections of: of items, and of a context if there is one."""
        heads = [self.count, *[1 if shared else self.count] * 2]
        return [heads] if context is None else [heads[:1], heads[1:]]

    def _parts(self, heads: list[int], made: Sequence[Any]) -> list[Pair]:
        """The parts of a projection, which have so many heads."""
        pairs = [*zip(made[::2], made[1::2])]
        if len(pairs) == 1 and len(set(heads)) == 1:
            return self._split(pairs[0], len(heads), heads[0])
        if len(pairs) == 1:
            mv, s = pairs[0]
            of_scalars: Any = [None] * len(heads)
            if s is not None:
                of_scalars = s.split([self.scalars * own for own in heads], dim=-1)
            pairs = [*zip(mv.split([self.channels * own for own in heads], dim=-1), of_scalars)]
        both = zip(pairs, heads, strict=True)
        return [part for pair, own in both for part in self._split(pair, 1, own)]

    def _split(self, pair: Pair, parts: int, heads: int) -> list[Pair]:
        """Parts that lie side by side: multivectors ``[blades, *batch, items, channels, heads]``, scalars ``[*batch, items,
        heads, scalars]``, normalised if the geometry says so."""
        split, s = pair[0].unflatten(-1, (parts, self.channels, heads)), pair[1]
        if self.geometry.head_norm:
            split = equi_layer_norm(split, self.geometry, dim=-2)
        of_scalars: list[Tensor | None] = [None] * parts
        if s is not None:
            divided = s.unflatten(-1, (parts, self.scalars, heads)).transpose(-1, -2)
            if self.geometry.head_norm:
                divided = scalar_layer_norm(divided)
            of_scalars = list(divided.unbind(-3))
        return list(zip(split.unbind(-3), of_scalars, strict=True))


@path.stands_for
class _SplitProjection(nn.Module):
    """Queries, keys and values of every head, by one linear layer."""

    def __init__(self, heads: Heads, channels: int, scalars: int, bias: bool) -> None:
        super().__init__()
        self.in_linear = EquiLinear(
            heads.geometry,
            channels,
            3 * heads.channels * heads.count,
            scalars,
            3 * heads.scalars * heads.count,
            bias=bias,
        )

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the projection to a network."""
        return described((self.in_linear,), network, network.beside(x, network.extra()))

    def forward(
        self, mv: Tensor, s: Tensor | None, extra_mv: Tensor | None, extra_s: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Multivectors and scalars of queries, keys and values side by side."""
        found: Pair = self.in_linear(_with(mv, extra_mv), _joined(s, extra_s))
        return found


@path.stands_for
class _SharedProjection(nn.Module):
    """Queries of every head, and keys and values that the heads share (multi-query attention)."""

    def __init__(
        self, heads: Heads, channels: int, scalars: int, extra: tuple[int, int], bias: bool
    ) -> None:
        super().__init__()
        more, more_s = channels + extra[0], scalars + extra[1]
        one, one_s, all_heads = heads.channels, heads.scalars, heads.count
        geometry = heads.geometry
        self.q_linear = EquiLinear(
            geometry, more, one * all_heads, more_s, one_s * all_heads, bias=bias
        )
        self.k_linear = EquiLinear(geometry, more, one, more_s, one_s, bias=bias)
        self.v_linear = EquiLinear(geometry, channels, one, scalars, one_s, bias=bias)

    def groups(self, extra: bool) -> list[Group]:
        """The linear layers, as they are called together; values do not see what queries and keys see besides."""
        if extra:
            return [(self.q_linear, self.k_linear), (self.v_linear,)]
        return [(self.q_linear, self.k_linear, self.v_linear)]

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the projections to a network."""
        extra = network.extra()
        first, *others = self.groups(extra is not None)
        found = described(first, network, network.beside(x, extra))
        for group in others:
            found = network.beside(found, described(group, network, x))
        return found

    def forward(
        self, mv: Tensor, s: Tensor | None, extra_mv: Tensor | None, extra_s: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Multivectors and scalars of queries, of keys and of values."""
        seen = _with(mv, extra_mv), _joined(s, extra_s)
        return (*self.q_linear(*seen), *self.k_linear(*seen), *self.v_linear(mv, s))


@path.stands_for
class SelfAttention(Networked):
    """Multi-head self-attention over the items of a set.

    Shapes: multivectors ``[blades, *batch, items, channels]``, scalars ``[*batch, items, scalars]``; the same at the
    output.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels.
        scalars: scalar channels; may be 0.
        heads: heads.
        ratio: the heads have ``ratio * channels // heads`` multivector channels together, at least 1 each, and
            ``ratio * scalars // heads`` scalars, at least 4.
        multi_query: whether all heads share keys and values.
        head_scale: whether each head has a factor, which starts at 1.
        bias: whether the projections to queries, keys and values have biases.
        rotary: whether scalars of queries and keys carry rotary positions.
        rotary_base: the base of their frequencies.
        extra_channels: multivector channels that the call adds to the inputs of queries and keys.
        extra_scalars: scalar channels that the call adds to them.
        dropout: probability of :class:`GradeDropout` on the output.
        initialization: of the output projection.
        eps, dtype: see :class:`GeometricAttention`.

    Sources: GATr (arXiv 2305.18415) and L-GATr (arXiv 2405.14806), with the names of their state dicts.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import SelfAttention
        >>> layer = SelfAttention(Algebra(3, 0, 1), 4, 8, heads=2)
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int = 0,
        *,
        heads: int = 8,
        ratio: int = 1,
        multi_query: bool = False,
        head_scale: bool = False,
        bias: bool = True,
        rotary: bool = False,
        rotary_base: float = 4096,
        extra_channels: int = 0,
        extra_scalars: int = 0,
        dropout: float | None = None,
        initialization: str = "small",
        eps: float = 1e-3,
        dtype: torch.dtype | None = None,
        out_channels: int | None = None,
        out_scalars: int | None = None,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        scalars = check_count("scalars", scalars)
        extra = (
            check_count("extra_channels", extra_channels),
            check_count("extra_scalars", extra_scalars),
        )
        self._input, self._extra = (channels, scalars), extra
        checks.positive("rotary_base", rotary_base)
        sizes = self._sizes = Heads(
            self.geometry, channels, scalars, heads, ratio, checks.flag("rotary", rotary)
        )
        if checks.flag("multi_query", multi_query):
            self.qkv_module: _SharedProjection | _SplitProjection = _SharedProjection(
                sizes, channels, scalars, extra, bias
            )
        else:
            self.qkv_module = _SplitProjection(sizes, channels + extra[0], scalars + extra[1], bias)
        self.out_linear = EquiLinear(
            self.geometry,
            sizes.channels * heads,
            channels if out_channels is None else out_channels,
            sizes.scalars * heads,
            scalars if out_scalars is None else out_scalars,
            initialization=initialization,
        )
        self.pos_encoding = RotaryEncoding(sizes.scalars, rotary_base) if rotary else None
        self.attention = GeometricAttention(
            self.geometry, sizes.channels, heads, eps=eps, dtype=dtype
        )
        self.head_scale = nn.Parameter(torch.ones(heads)) if checks.flag("head_scale", head_scale) else None
        self.dropout = None if dropout is None else GradeDropout(self.geometry, dropout)

    def variant(self) -> Variant:
        """The call that the layer was made for, without a mask."""
        return Variant(self._input, self._extra if any(self._extra) else None)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network."""
        network.reads(self, "_sizes", "pos_encoding")
        projection = self.qkv_module
        projected = network.call(projection, x, sees=("extra",))
        shared, positions = type(projection) is _SharedProjection, self.pos_encoding
        of = network, self.attention, projected
        found = self._sizes.describe(*of, shared=shared, positions=positions)
        return _finish(self, network, found)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        extra_multivectors: Tensor | None = None,
        extra_scalars: Tensor | None = None,
        **options: object,
    ) -> Pair:
        """The multivectors ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` after
        attention; the channels are ``out_channels`` and ``out_scalars`` if the layer has them. ``options`` are those
        of :func:`attend`: ``mask``, ``is_causal``, ``cu_seqlens``.
        """
        extra = extra_multivectors, extra_scalars
        given = Given((multivectors, scalars), None, extra, options=options)
        return run(self, self.geometry, given)


@path.stands_for
class CrossAttention(Networked):
    """Multi-head attention of the items of one set to the items of another.

    Shapes: queries ``[blades, *batch, items, channels]`` and ``[*batch, items, scalars]``, keys and values
    ``[blades, *batch, others, other_channels]`` and ``[*batch, others, other_scalars]``; the output has the shapes of
    the queries.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels of the queries.
        scalars: scalar channels of the queries.
        other_channels: multivector channels of keys and values.
        other_scalars: scalar channels of keys and values.
        joint: whether one linear layer makes keys and values, as in L-GATr, or two, as in GATr. GATr's heads have
            ``ratio * other_channels // heads`` channels.
        head_norm: whether queries, keys and values are normalised; as the geometry says by default. L-GATr 1.4 does not
            normalise them in cross-attention.
        heads, ratio, multi_query, head_scale, bias, dropout, initialization, eps, dtype: as for :class:`SelfAttention`.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import CrossAttention
        >>> other = torch.randn(16, 2, 6, 3)
        >>> layer = CrossAttention(Algebra(3, 0, 1), 4, 8, 3, 5, heads=2)
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), other, torch.randn(2, 10, 8), torch.randn(2, 6, 5))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int,
        other_channels: int,
        other_scalars: int,
        *,
        heads: int = 8,
        ratio: int = 1,
        multi_query: bool = False,
        head_scale: bool = False,
        bias: bool = True,
        joint: bool = True,
        head_norm: bool | None = None,
        dropout: float | None = None,
        initialization: str = "small",
        eps: float = 1e-3,
        dtype: torch.dtype | None = None,
        out_channels: int | None = None,
        out_scalars: int | None = None,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        of_heads = (
            self.geometry if head_norm is None else replace(self.geometry, head_norm=head_norm)
        )
        scalars = check_count("scalars", scalars)
        other_channels = check_features("other_channels", other_channels)
        other_scalars = check_count("other_scalars", other_scalars)
        joint = checks.flag("joint", joint)
        scaled = (channels, scalars) if joint else (other_channels, other_scalars)
        sizes = self._sizes = Heads(of_heads, *scaled, heads, ratio, False)
        self._shared = 1 if checks.flag("multi_query", multi_query) else heads
        one, one_s = sizes.channels, sizes.scalars
        self.q_linear = EquiLinear(
            self.geometry, channels, one * heads, scalars, one_s * heads, bias=bias
        )
        made, made_s = one * self._shared, one_s * self._shared

        def of_others(parts: int) -> EquiLinear:
            return EquiLinear(
                self.geometry,
                other_channels,
                parts * made,
                other_scalars,
                parts * made_s,
                bias=bias,
            )

        self.joint = joint
        if joint:
            self.kv_linear = of_others(2)
        else:
            self.k_linear = of_others(1)
            self.v_linear = of_others(1)
        self.out_linear = EquiLinear(
            self.geometry,
            one * heads,
            channels if out_channels is None else out_channels,
            one_s * heads,
            scalars if out_scalars is None else out_scalars,
            initialization=initialization,
        )
        self.attention = GeometricAttention(self.geometry, one, heads, eps=eps, dtype=dtype)
        self.head_scale = nn.Parameter(torch.ones(heads)) if checks.flag("head_scale", head_scale) else None
        self.dropout = None if dropout is None else GradeDropout(self.geometry, dropout)

    def groups_of_others(self) -> Group:
        """The linear layers to keys and values, which are called together."""
        return (self.kv_linear,) if self.joint else (self.k_linear, self.v_linear)

    def variant(self) -> Variant:
        """The call that the layer was made for, without a mask."""
        own, others = self.q_linear, self.groups_of_others()[0]
        context = others.in_channels, others.in_scalars
        return Variant((own.in_channels, own.in_scalars), context=context)

    def describe(self, network: Description, x: Tokens, context: Tokens | None = None) -> Tokens:
        """Adds the layer to a network, with the context of the call if none is given."""
        network.reads(self, "_sizes", "_shared", "joint")
        others = network.context() if context is None else context
        queries = described((self.q_linear,), network, x)
        seen = described(self.groups_of_others(), network, others)
        of = network, self.attention, queries, seen
        return _finish(self, network, self._sizes.describe(*of, shared=self._shared == 1))

    def forward(
        self,
        multivectors: Tensor,
        other_multivectors: Tensor,
        scalars: Tensor | None = None,
        other_scalars: Tensor | None = None,
        **options: object,
    ) -> Pair:
        """The multivectors ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` that
        attended to others ``[blades, *batch, others, other_channels]`` and ``[*batch, others, other_scalars]``; the
        channels are ``out_channels`` and ``out_scalars`` if the layer has them. ``options`` are the options of
        :func:`attend`: ``mask``, ``is_causal``, ``cu_seqlens``, ``cu_seqlens_key``.
        """
        own = {name: options[name] for name in ("cu_seqlens",) if name in options}
        given = Given(
            (multivectors, scalars),
            context=(other_multivectors, other_scalars),
            options=own,
            context_options=options,
        )
        return run(self, self.geometry, given)


def _finish(layer: SelfAttention | CrossAttention, network: Description, x: Tokens) -> Tokens:
    """Scales the heads, merges them, and drops grades."""
    heads = layer._sizes.count
    gains = network.optional(layer, "head_scale", (heads,))
    if gains is not None:
        x = network.head_gains(x, heads, gains)
    x = network.call(layer.out_linear, x)
    network.reads(layer, "dropout")
    return x if layer.dropout is None else network.call(layer.dropout, x)


def _joined(x: Tensor | None, extra: Tensor | None) -> Tensor | None:
    return None if x is None else _with(x, extra)


def _with(x: Tensor, extra: Tensor | None) -> Tensor:
    return x if extra is None else torch.cat((x, extra), dim=-1)
