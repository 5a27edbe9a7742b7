"""Attention of L-GATr-slim.

Vectors are ``[*batch, items, 4, channels]`` and scalars ``[*batch, items, scalars]``.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....nn._module import check_count, check_features
from ....nn.transformer import attend, path
from ....nn.transformer.described import Description, Tokens
from ....nn.transformer.geometry import constant
from ..options import attention_options
from ..precision import in_float32
from .slim import SlimDropout, SlimLinear
from .slim_version import V2, VectorsScalars, Version, minkowski

__all__ = ["SlimCrossAttention", "SlimSelfAttention"]

EPSILON = 0.01


class _Heads(nn.Module):
    """The base of self-attention and cross-attention: sizes, packing, attention and linear maps.

    Args:
        inputs: name, vector channels, scalar channels and parts of each linear map that makes queries, keys and values.
        v_channels: vector channels of the output.
        s_channels: scalar channels of the output.
        num_heads, attn_ratio, dropout_prob: as for :class:`SlimSelfAttention`.
        version: the version of lgatr; that of the class by default.
    """

    linear_in: SlimLinear
    linear_in_q: SlimLinear
    linear_in_kv: SlimLinear
    version = V2

    def __init__(
        self,
        inputs: Sequence[tuple[str, int, int, int]],
        v_channels: int,
        s_channels: int,
        num_heads: int,
        attn_ratio: int,
        dropout_prob: float | None,
        version: Version | None,
    ) -> None:
        super().__init__()
        version = version or self.version
        self.num_heads = num_heads = check_features("num_heads", num_heads)
        attn_ratio = check_features("attn_ratio", attn_ratio)
        v_channels = check_count("v_channels", v_channels)
        s_channels = check_count("s_channels", s_channels)
        self.hidden_v_channels = max(attn_ratio * v_channels // num_heads, 1)
        self.hidden_s_channels = max(attn_ratio * s_channels // num_heads, 4)
        # The last map draws its start first, but is registered last: states of optimisers go by position, and this is
        # lgatr's order.
        linear_out = SlimLinear(
            self.hidden_v_channels * num_heads,
            v_channels,
            self.hidden_s_channels * num_heads,
            s_channels,
            initialization="small",
            version=version,
        )
        for name, v, s, parts in inputs:
            self.add_module(name, self._linear(v, s, parts, version))
        self.linear_out = linear_out
        self.dropout = None if dropout_prob is None else SlimDropout(dropout_prob)
        if version.metric:
            self.register_buffer("metric", torch.tensor([1.0, -1.0, -1.0, -1.0]))

    def _linear(self, v_channels: int, s_channels: int, parts: int, version: Version) -> SlimLinear:
        return SlimLinear(
            v_channels,
            parts * self.hidden_v_channels * self.num_heads,
            s_channels,
            parts * self.hidden_s_channels * self.num_heads,
            bias=version.attention_bias,
            initialization="small",
            version=version,
        )

    @in_float32
    def _packed(self, parts: int, vectors: Tensor, scalars: Tensor) -> tuple[Tensor, ...]:
        """Splits channels into parts and heads, the head being the fastest index, and normalises each head: ``parts``
        tensors ``[*batch, heads, items, 4 * vectors + scalars]``."""
        per_v, per_s, heads = self.hidden_v_channels, self.hidden_s_channels, self.num_heads
        v = vectors.unflatten(-1, (parts, per_v, heads)).movedim(-3, 0).movedim(-1, -4).flatten(-2)
        s = scalars.unflatten(-1, (parts, per_s, heads)).movedim(-3, 0).movedim(-1, -3)
        packed = torch.cat((v, s), dim=-1)
        wide = packed.to(torch.promote_types(packed.dtype, torch.float32))
        of_v, of_s = wide.square().split((4 * per_v, per_s), dim=-1)
        total = minkowski(of_v.unflatten(-1, (4, per_v))).abs().sum(-1) + of_s.sum(-1)
        factor = torch.rsqrt(total / (per_v + per_s) + EPSILON)
        return (wide * factor.unsqueeze(-1)).to(packed.dtype).unbind(0)

    @in_float32
    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, **options: Any
    ) -> VectorsScalars:
        per_v, per_s = self.hidden_v_channels, self.hidden_s_channels
        signs = constant((1.0,) * per_v + (-1.0,) * (3 * per_v) + (1.0,) * per_s, query)
        out = attend(query * signs, key, value, **options)
        v = out[..., : 4 * per_v].unflatten(-1, (4, per_v)).movedim(-4, -2).flatten(-2)
        return v, out[..., 4 * per_v :].movedim(-3, -2).flatten(-2)

    def _describe(
        self, network: Description, x: Tokens, context: Tokens | None = None
    ) -> Tokens:
        """Adds the attention of projections to a network, and what follows it."""
        network.reads(self, "num_heads", "hidden_v_channels", "hidden_s_channels")
        head = self.hidden_v_channels, self.hidden_s_channels
        x = network.attention(x.geometry, x, self.num_heads, head, shared=False, context=context)
        x = network.call(self.linear_out, x)
        return x if self.dropout is None else network.call(self.dropout, x)

    def _finish(self, vectors: Tensor, scalars: Tensor) -> VectorsScalars:
        out = self.linear_out(vectors, scalars)
        return out if self.dropout is None else self.dropout(*out)


@path.stands_for
class SlimSelfAttention(_Heads):
    """Multi-head self-attention of vectors ``[*batch, items, 4, v_channels]`` and scalars ``[*batch, items,
    s_channels]``.

    Args:
        v_channels: vector channels.
        s_channels: scalar channels.
        num_heads: heads.
        attn_ratio: channels of all heads together, for each channel.
        dropout_prob: probability of dropout on the output.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        attn_ratio: int = 1,
        dropout_prob: float | None = None,
        *,
        version: Version | None = None,
    ) -> None:
        inputs = (("linear_in", v_channels, s_channels, 3),)
        super().__init__(
            inputs, v_channels, s_channels, num_heads, attn_ratio, dropout_prob, version
        )

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network."""
        return self._describe(network, network.call(self.linear_in, x))

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> VectorsScalars:
        """The vectors ``[*batch, items, 4, v_channels]`` and scalars ``[*batch, items, s_channels]`` after
        attention, in the same shapes; for ``attn_kwargs`` see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        query, key, value = self._packed(3, *self.linear_in(vectors, scalars))
        return self._finish(*self._attended(query, key, value, **attention_options(attn_kwargs)))


@path.stands_for
class SlimCrossAttention(_Heads):
    """Multi-head attention of vectors ``[*batch, items, 4, q_v_channels]`` to the vectors of another set.

    Args:
        q_v_channels: vector channels of the items.
        kv_v_channels: vector channels of the others.
        q_s_channels: scalar channels of the items.
        kv_s_channels: scalar channels of the others.
        num_heads: heads.
        attn_ratio: channels of all heads together, for each channel of the items.
        dropout_prob: probability of dropout on the output.
    """

    def __init__(
        self,
        q_v_channels: int,
        kv_v_channels: int,
        q_s_channels: int,
        kv_s_channels: int,
        num_heads: int,
        attn_ratio: int = 1,
        dropout_prob: float | None = None,
        *,
        version: Version | None = None,
    ) -> None:
        inputs = (
            ("linear_in_q", q_v_channels, q_s_channels, 1),
            ("linear_in_kv", kv_v_channels, kv_s_channels, 2),
        )
        super().__init__(
            inputs, q_v_channels, q_s_channels, num_heads, attn_ratio, dropout_prob, version
        )

    def describe(self, network: Description, x: Tokens, context: Tokens | None = None) -> Tokens:
        """Adds the layer to a network, with the context of the call if none is given."""
        context = network.context() if context is None else context
        others = network.call(self.linear_in_kv, context)
        return self._describe(network, network.call(self.linear_in_q, x), others)

    def forward(
        self,
        vectors_q: Tensor,
        vectors_kv: Tensor,
        scalars_q: Tensor,
        scalars_kv: Tensor,
        **attn_kwargs: Any,
    ) -> VectorsScalars:
        """Vectors ``[*batch, items, 4, q_v_channels]`` and scalars ``[*batch, items, q_s_channels]`` that attended
        to the others, in the same shapes; for ``attn_kwargs`` see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        (query,) = self._packed(1, *self.linear_in_q(vectors_q, scalars_q))
        key, value = self._packed(2, *self.linear_in_kv(vectors_kv, scalars_kv))
        options = attention_options(attn_kwargs, cross=True)
        return self._finish(*self._attended(query, key, value, **options))
