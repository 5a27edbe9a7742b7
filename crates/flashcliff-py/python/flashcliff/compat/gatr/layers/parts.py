"""The parts of attention as separate layers, in GATr's layout: projections to heads, and attention of these.

:class:`flashcliff.compat.gatr.SelfAttention` does not contain them; it has the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ... import _qkv
from ..._blades_last import Pair
from ..._config import known
from ..config import SelfAttentionConfig
from ..primitives import geometric_attention
from .linear import EquiLinear

__all__ = ["GeometricAttention", "MultiQueryQKVModule", "QKVModule"]


class QKVModule(_qkv.SplitOfInputs):
    """Queries, keys and values of every head, ``[*batch, heads, items, channels, 16]`` and ``[*batch, heads, items,
    scalars]``, by one linear layer.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig | Mapping[str, Any]) -> None:
        super().__init__(SelfAttentionConfig.cast(config), EquiLinear)


class MultiQueryQKVModule(_qkv.SharedOfInputs):
    """As :class:`QKVModule`, but all heads share keys and values, which have one head.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig | Mapping[str, Any]) -> None:
        super().__init__(SelfAttentionConfig.cast(config), EquiLinear)


class GeometricAttention(nn.Module):
    """Attention of queries, keys and values of heads, by inner products and distances of points; each head and channel
    has a weight of distances.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig | Mapping[str, Any]) -> None:
        super().__init__()
        config = SelfAttentionConfig.cast(config)
        channels = known("in_mv_channels", config.hidden_mv_channels)
        self.normalizer = partial(_towards_one, epsilon=known("normalizer_eps", config.normalizer_eps))
        self.log_weights = nn.Parameter(torch.zeros(config.num_heads, 1, channels))

    def forward(
        self,
        q_mv: Tensor,
        k_mv: Tensor,
        v_mv: Tensor,
        q_s: Tensor,
        k_s: Tensor,
        v_s: Tensor,
        attention_mask: Any = None,
    ) -> Pair:
        """The values ``[*batch, heads, items, channels, 16]`` and ``[*batch, heads, items, scalars]`` by the weights
        of queries and keys; see :func:`flashcliff.compat.gatr.primitives.geometric_attention`.
        """
        weights = self.log_weights.exp()
        return geometric_attention(
            q_mv, k_mv, v_mv, q_s, k_s, v_s, self.normalizer, weights, attention_mask
        )


def _towards_one(weight: Tensor, epsilon: float) -> Tensor:
    """The factor that makes the weight of a point 1, or little of a point that has nearly none."""
    return weight / (weight.square() + epsilon)
