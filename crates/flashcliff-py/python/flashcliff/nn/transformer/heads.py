"""Self-attention and cross-attention: projections to heads, attention, projection back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..._ops import checks
from .._module import check_count, check_features
from . import path
from .attention import GeometricAttention, Pair
from .described import Description, Given, Networked, Tokens, Undescribed, Variant, attempt
from .gate import GradeDropout
from .geometry import Geometry, GeometryLike, geometry_of
from .linear import EquiLinear, Group, described
from .norm import equi_layer_norm, scalar_layer_norm
from .rotary import RotaryEncoding

__all__ = ["CrossAttention", "Pair", "SelfAttention"]


class Projected(NamedTuple):
    """The output of a linear layer. Its channels are divided into parts, such as queries and keys, and into heads."""

    pair: Pair
    parts: int
    heads: int


class Heads:
    """The sizes of heads, and how channels split into them: the head is the fastest index."""

    def __init__(
        self, geometry: Geometry, channels: int, scalars: int, heads: int, ratio: int, rotary: bool
    ) -> None:
        self.geometry = geometry
        self.count = check_features("heads", heads)
        ratio = check_features("ratio", ratio)
        self.channels = max(ratio * check_features("channels", channels) // heads, 1)
        self.scalars = max(ratio * scalars // heads, 4) if scalars else 0
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
        rotary_base: int | None = None,
    ) -> Tokens:
        """Adds the attention of projections to a network."""
        if type(attention) is not GeometricAttention or attention.heads != self.count:
            raise Undescribed("attention has other heads than its projections, or is of another class")
        head, head_norm = (self.channels, self.scalars), self.geometry.head_norm
        if rotary_base is not None and head_norm:
            raise Undescribed("heads have a norm and rotary positions")
        wanted = [self.count, *[1 if shared else self.count] * 2]
        sides = [wanted] if context is None else [wanted[:1], wanted[1:]]
        for side, made in zip(sides, (projected, context)):
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

    def split(self, made: Projected) -> list[Pair]:
        """The parts of a projection: multivectors ``[blades, *batch, items, channels, heads]``, scalars ``[*batch,
        items, heads, scalars]``, normalised if the geometry says so."""
        split, divided = self._divided(made)
        if self.geometry.head_norm:
            split = equi_layer_norm(split, self.geometry, dim=-2)
        of_scalars: list[Tensor | None] = [None] * made.parts
        if divided is not None:
            divided = divided.transpose(-1, -2)
            if self.geometry.head_norm:
                divided = scalar_layer_norm(divided)
            of_scalars = list(divided.unbind(-3))
        return list(zip(split.unbind(-3), of_scalars, strict=True))

    def attended(
        self, attention: GeometricAttention, projections: Sequence[Projected], **options: object
    ) -> Pair:
        """The attention of queries, keys and values, which are the parts of projections."""
        out: Pair = attention(*self._parts(projections), **options)
        return out

    def _parts(self, projections: Sequence[Projected]) -> list[Pair]:
        return [part for made in projections for part in self.split(made)]

    def _divided(self, made: Projected) -> Pair:
        """Multivectors ``[blades, *batch, items, parts, channels, heads]`` and scalars likewise."""
        mv, s = made.pair
        split = mv.unflatten(-1, (made.parts, self.channels, made.heads))
        return split, None if s is None else s.unflatten(-1, (made.parts, self.scalars, made.heads))


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

    def groups(self, extra: bool) -> list[Group]:
        """The linear layers, as they are called together."""
        return [(self.in_linear,)]

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
        sizes = self._sizes = Heads(
            self.geometry, channels, scalars, heads, ratio, checks.flag("rotary", rotary)
        )
        if multi_query:
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
        self.head_scale = nn.Parameter(torch.ones(heads)) if head_scale else None
        self.dropout = None if dropout is None else GradeDropout(self.geometry, dropout)

    def variant(self) -> Variant:
        """The call that the layer was made for, without a mask."""
        return Variant(self._input, self._extra if any(self._extra) else None)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network."""
        network.reads(self, "_sizes", "pos_encoding")
        projection, encoding, base = self.qkv_module, self.pos_encoding, None
        if encoding is not None:
            if type(encoding) is not RotaryEncoding:
                raise Undescribed(f"positions are of the class {type(encoding).__name__}")
            base = encoding.described_base(network, self._sizes.scalars)
        shared = type(projection) is _SharedProjection
        projected = network.call(projection, x)
        found = self._sizes.describe(
            network, self.attention, projected, shared=shared, rotary_base=base
        )
        return _described_finish(self, network, found)

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
        found = attempt(self, self.geometry, given, self._composed)
        return self._composed(given) if found is None else found

    def _composed(self, given: Given) -> Pair:
        """The layer by the calls of its parts."""
        options: Any = given.options
        found = self.qkv_module(*given.here, *given.extra)
        # Hooks want tensors, so what these are is known here.
        if len(found) == 2:
            made = [Projected(found, 3, self._sizes.count)]
        else:
            pairs = zip(found[::2], found[1::2], (self._sizes.count, 1, 1), strict=True)
            made = [Projected((mv, s), 1, heads) for mv, s, heads in pairs]
        if self.pos_encoding is None:
            return _finish(self, self._sizes.attended(self.attention, made, **options))
        query, key, value = self._sizes._parts(made)
        query = query[0], self.pos_encoding(query[1])
        key = key[0], self.pos_encoding(key[1])
        return _finish(self, self.attention(query, key, value, **options))


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
        self.head_scale = nn.Parameter(torch.ones(heads)) if head_scale else None
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
        found = self._sizes.describe(
            network,
            self.attention,
            described((self.q_linear,), network, x),
            described(self.groups_of_others(), network, others),
            shared=self._shared == 1,
        )
        return _described_finish(self, network, found)

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
        found = attempt(self, self.geometry, given, self._composed)
        return self._composed(given) if found is None else found

    def _composed(self, given: Given) -> Pair:
        """The layer by the calls of its parts."""
        (multivectors, scalars), (other_multivectors, other_scalars) = given.here, given.context
        options: Any = given.context_options
        made = [Projected(self.q_linear(multivectors, scalars), 1, self._sizes.count)]
        if self.joint:
            both = self.kv_linear(other_multivectors, other_scalars)
            made.append(Projected(both, 2, self._shared))
        else:
            for layer in (self.k_linear, self.v_linear):
                of_others = layer(other_multivectors, other_scalars)
                made.append(Projected(of_others, 1, self._shared))
        return _finish(self, self._sizes.attended(self.attention, made, **options))


def _finish(layer: SelfAttention | CrossAttention, attended: Pair) -> Pair:
    """Scales the heads, merges them, and drops grades."""
    mv, s = attended
    if layer.head_scale is not None:
        scale = layer.head_scale
        mv = mv * scale.repeat_interleave(mv.shape[-1] // len(scale))
        s = None if s is None else s * scale.repeat_interleave(s.shape[-1] // len(scale))
    out = layer.out_linear(mv, s)
    return out if layer.dropout is None else layer.dropout(*out)


def _described_finish(
    layer: SelfAttention | CrossAttention, network: Description, x: Tokens
) -> Tokens:
    """Adds to a network what :func:`_finish` does."""
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
