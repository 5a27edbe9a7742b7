"""The projections of attention as separate layers, in L-GATr's layout.

:class:`flashcliff.compat.lgatr.SelfAttention` does not contain them; it has the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ... import _qkv
from ..config import PrimitivesConfig, SelfAttentionConfig
from .linear import EquiLayerNorm, EquiLinear, Primitives

__all__ = ["MultiQueryQKVModule", "QKVModule"]


class QKVModule(_qkv.Split):
    """Normalised queries, keys and values of every head, ``[*batch, heads, items, channels, 16]`` and ``[*batch, heads,
    items, scalars]``, by one linear layer.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
        primitives: the group.
    """

    def __init__(
        self, config: SelfAttentionConfig | Mapping[str, Any], primitives: Primitives
    ) -> None:
        linear = _Linear(PrimitivesConfig.cast(primitives))
        super().__init__(SelfAttentionConfig.cast(config), linear, EquiLayerNorm())


class MultiQueryQKVModule(_qkv.Shared):
    """As :class:`QKVModule`, but all heads share keys and values, which have one head.

    Args:
        config: the sizes; it must say ``in_mv_channels``.
        primitives: the group.
    """

    def __init__(
        self, config: SelfAttentionConfig | Mapping[str, Any], primitives: Primitives
    ) -> None:
        linear = _Linear(PrimitivesConfig.cast(primitives))
        super().__init__(SelfAttentionConfig.cast(config), linear, EquiLayerNorm())


class _Linear:
    """Makes linear layers without biases."""

    def __init__(self, primitives: PrimitivesConfig) -> None:
        self.primitives = primitives

    def __call__(self, mv: int, out_mv: int, s: int | None, out_s: int | None) -> nn.Module:
        return EquiLinear(mv, out_mv, self.primitives, s or 0, out_s or 0, bias=False)
