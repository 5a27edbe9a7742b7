"""Self-attention and cross-attention: projections to heads, attention, projection back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..._ops import checks, equivariant
from .._module import check_count, check_features
from . import items, path
from .attention import GeometricAttention, Pair, padded_counts, widened
from .gate import GradeDropout
from .geometry import Geometry, GeometryLike, geometry_of
from .linear import EquiLinear, Group, together
from .norm import EPS, SCALAR_EPS, equi_layer_norm, scalar_layer_norm
from .rotary import RotaryEncoding

__all__ = ["CrossAttention", "Pair", "SelfAttention"]


class Projected(NamedTuple):
    """The output of a linear layer whose channels are those of parts, such as queries and keys, and of heads."""

    pair: Pair
    parts: int
    heads: int


class _Heads:
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
        if path.of_call(attention, GeometricAttention) is not None:
            called: Pair = attention(*self._parts(projections), **options)
            return called
        pairs = [made.pair for made in projections]
        algebra, weights = self.geometry.algebra, attention.distance_weights()
        tensors = [tensor for pair in pairs for tensor in pair]
        # The kernels take distances of points that were not normalised.
        mixed = self.geometry.head_norm and weights is not None
        of_items = pairs[0][0].dtype
        dtype = attention.dtype or of_items
        known = items.serves_features(of_items, dtype)
        served = items.serves(algebra, *tensors, weights) or (
            not self.geometry.head_norm
            and equivariant.serves_heads(of_items, dtype, *tensors, weights)
        )
        # The kernels take queries, keys and values of the same items. Sizes are compared last: an export would keep what it learned.
        served = served and all(mv.shape[:-1] == pairs[0][0].shape[:-1] for mv, _ in pairs)
        if mixed or not known or not served:
            out: Pair = attention(*self._parts(projections), **options)
            return out

        split = attention.split((EPS, SCALAR_EPS) if self.geometry.head_norm else None)
        heads = items.Heads(
            self.channels,
            self.scalars,
            tuple((made.parts, made.heads) for made in projections),
            attention.roles(),
            dtype,
            (),
        )
        of_query, _, of_value = (heads.features(role, split) for role in heads.roles)
        # Values keep their count: what they attend to is merged without what would follow it.
        wide, _ = padded_counts(of_query, of_value, dtype, pairs[0][0].is_cuda)
        heads = heads._replace(widths=(wide, wide, of_value))

        def composed(weights: Tensor | None, *given: Tensor) -> list[Tensor]:
            step = len(given) // len(projections)
            remade = [
                made._replace(pair=(given[at * step], given[at * step + 1] if step > 1 else None))
                for at, made in enumerate(projections)
            ]
            found = attention.features(weights, *self._parts(remade))
            return [
                widened(part, width).movedim(-3, -2).flatten(0, -3)
                for part, width in zip(found, heads.widths, strict=True)
            ]

        q, k, v = items.head_features(algebra, heads, split, weights, pairs, composed)
        # The zeros behind features do not count.
        options = {"scale": 1 / math.sqrt(of_query), **options}
        return attention.of_features(q, k, v, of_items, **options)

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

    def __init__(self, heads: _Heads, channels: int, scalars: int, bias: bool) -> None:
        super().__init__()
        self._heads = heads
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
        self, heads: _Heads, channels: int, scalars: int, extra: tuple[int, int], bias: bool
    ) -> None:
        super().__init__()
        self._heads = heads
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

    def forward(
        self, mv: Tensor, s: Tensor | None, extra_mv: Tensor | None, extra_s: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Multivectors and scalars of queries, of keys and of values."""
        first, *others = self.groups(extra_mv is not None or extra_s is not None)
        made = together(first, _with(mv, extra_mv), _joined(s, extra_s))
        for group in others:
            made += together(group, mv, s)
        return tuple([x for pair in made for x in pair])


@path.stands_for
class SelfAttention(nn.Module):
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
        sizes = self._sizes = _Heads(
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

    def groups(self, extra: bool) -> list[Group]:
        """The linear layers, as they are called together. ``extra``: whether the call adds channels."""
        return [*self.qkv_module.groups(extra), (self.out_linear,)]

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        extra_multivectors: Tensor | None = None,
        extra_scalars: Tensor | None = None,
        **options: object,
    ) -> Pair:
        """Attends. ``options`` are those of :func:`attend`: ``mask``, ``is_causal``, ``cu_seqlens``."""
        found = self.qkv_module(multivectors, scalars, extra_multivectors, extra_scalars)
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


class CrossAttention(nn.Module):
    """Multi-head attention of the items of one set to those of another.

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
        sizes = self._sizes = _Heads(of_heads, *scaled, heads, ratio, False)
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

    def forward(
        self,
        multivectors: Tensor,
        other_multivectors: Tensor,
        scalars: Tensor | None = None,
        other_scalars: Tensor | None = None,
        **options: object,
    ) -> Pair:
        """Attends. ``options`` are those of :func:`attend`: ``mask``, ``is_causal``, ``cu_seqlens``,
        ``cu_seqlens_key``."""
        made = [Projected(self.q_linear(multivectors, scalars), 1, self._sizes.count)]
        if self.joint:
            both = self.kv_linear(other_multivectors, other_scalars)
            made.append(Projected(both, 2, self._shared))
        else:
            layers = self.k_linear, self.v_linear
            of_others = together(layers, other_multivectors, other_scalars)
            made += [Projected(pair, 1, self._shared) for pair in of_others]
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


def _joined(x: Tensor | None, extra: Tensor | None) -> Tensor | None:
    return None if x is None else _with(x, extra)


def _with(x: Tensor, extra: Tensor | None) -> Tensor:
    return x if extra is None else torch.cat((x, extra), dim=-1)
