"""The parts of attention of lgatr 1.4 as layers of their own: projections to heads, and attention of these.

:class:`flashcliff.compat.lgatr.v1.SelfAttention` does not contain them; it has the same parameters.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ... import _qkv
from ..._blades_last import Pair
from .config import SelfAttentionConfig
from .layers import EquiLayerNorm, EquiLinear
from .primitives import sdp_attention

__all__ = ["GeometricAttention", "MultiQueryQKVModule", "QKVModule"]


class QKVModule(_qkv.Split):
    """Normalised queries, keys and values of every head, ``[*batch, heads, items, channels, 16]`` and ``[*batch, heads,
    items, scalars]``, by one linear layer.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig) -> None:
        super().__init__(SelfAttentionConfig.cast(config), EquiLinear, EquiLayerNorm())

    def forward(  # type: ignore[override]
        self,
        inputs: Tensor,
        scalars: Tensor | None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
    ) -> _qkv.Six:
        """Projects multivectors ``[*batch, items, channels, 16]`` and scalars; the additional features are seen too."""
        more = additional_qk_features_mv, additional_qk_features_s
        return super().forward(inputs, scalars, *more)


class MultiQueryQKVModule(_qkv.Shared):
    """As :class:`QKVModule`, but all heads share keys and values, which have one head.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig) -> None:
        super().__init__(SelfAttentionConfig.cast(config), EquiLinear, EquiLayerNorm())

    def forward(  # type: ignore[override]
        self,
        inputs: Tensor,
        scalars: Tensor | None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
    ) -> _qkv.Six:
        """Projects multivectors and scalars; values do not see the additional features."""
        more = additional_qk_features_mv, additional_qk_features_s
        return super().forward(inputs, scalars, *more)


class GeometricAttention(nn.Module):
    """Attention of queries, keys and values of heads, without parameters.

    Args:
        config: no effect.
    """

    def __init__(self, config: SelfAttentionConfig) -> None:
        super().__init__()

    def forward(
        self,
        q_mv: Tensor,
        k_mv: Tensor,
        v_mv: Tensor,
        q_s: Tensor | None,
        k_s: Tensor | None,
        v_s: Tensor | None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Attends; see :func:`flashcliff.compat.lgatr.v1.primitives.sdp_attention`."""
        return sdp_attention(q_mv, k_mv, v_mv, q_s, k_s, v_s, **attn_kwargs)
