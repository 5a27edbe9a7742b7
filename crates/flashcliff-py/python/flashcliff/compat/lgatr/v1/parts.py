"""The parts of attention of lgatr 1.4 as separate layers: projections to heads, and attention of these.

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


class QKVModule(_qkv.SplitOfInputs):
    """Normalised queries, keys and values of every head, ``[*batch, heads, items, channels, 16]`` and ``[*batch, heads,
    items, scalars]``, by one linear layer.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig) -> None:
        super().__init__(SelfAttentionConfig.cast(config), EquiLinear, EquiLayerNorm())


class MultiQueryQKVModule(_qkv.SharedOfInputs):
    """As :class:`QKVModule`, but all heads share keys and values, which have one head.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig) -> None:
        super().__init__(SelfAttentionConfig.cast(config), EquiLinear, EquiLayerNorm())


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
        """The values ``[*batch, heads, items, channels, 16]`` and ``[*batch, heads, items, scalars]`` by the weights
        of queries and keys; see :func:`flashcliff.compat.lgatr.v1.primitives.sdp_attention`.
        """
        return sdp_attention(q_mv, k_mv, v_mv, q_s, k_s, v_s, **attn_kwargs)
