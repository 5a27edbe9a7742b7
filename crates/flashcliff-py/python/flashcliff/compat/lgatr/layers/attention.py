"""Self-attention and cross-attention in L-GATr's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import extra, known, output
from ..config import CrossAttentionConfig, PrimitivesConfig, SelfAttentionConfig
from ..options import attention_options
from ..precision import in_float32
from .linear import Primitives

__all__ = ["CrossAttention", "SelfAttention"]


class OfItems(nn.Module):
    """The call of a layer of items, or of a block without a condition, in L-GATr's layout."""

    in_mv_channels: int | None
    """Multivector channels of the items."""

    @in_float32
    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Applies the layer.

        Args:
            multivectors: the items ``[*batch, items, in_mv_channels, 16]``.
            scalars: their scalars.
            additional_qk_features_mv: channels that queries and keys see too, ``[*batch, items, more, 16]``.
            additional_qk_features_s: scalars that they see too.
            attn_kwargs: see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        more = additional_qk_features_mv
        out = super().forward(
            enter("multivectors", multivectors, self.in_mv_channels),
            scalars,
            None if more is None else enter("additional_qk_features_mv", more),
            additional_qk_features_s,
            **attention_options(attn_kwargs),
        )
        return leave(out)


class SelfAttention(OfItems, transformer.SelfAttention):  # type: ignore[misc]
    """Multi-head self-attention of multivectors ``[*batch, items, channels, 16]`` and scalars ``[*batch, items,
    scalars]``.

    Args:
        config: the sizes; it must say ``in_mv_channels`` and ``out_mv_channels``.
        primitives: the group.
    """

    def __init__(
        self, config: SelfAttentionConfig | Mapping[str, Any], primitives: Primitives
    ) -> None:
        config = SelfAttentionConfig.cast(config)
        super().__init__(
            PrimitivesConfig.cast(primitives).geometry,
            known("in_mv_channels", config.in_mv_channels),
            config.in_s_channels,
            **config.heads(),
            **extra(config),
            **output(config),
        )
        self.config = config
        self.in_mv_channels = config.in_mv_channels


class CrossAttention(transformer.CrossAttention):
    """Multi-head attention of multivectors ``[*batch, items, channels, 16]`` to the multivectors of another set.

    Args:
        config: the sizes; it must say ``q_mv_channels``, ``kv_mv_channels`` and ``out_mv_channels``.
        primitives: the group.
    """

    def __init__(
        self, config: CrossAttentionConfig | Mapping[str, Any], primitives: Primitives
    ) -> None:
        config = CrossAttentionConfig.cast(config)
        super().__init__(
            PrimitivesConfig.cast(primitives).geometry,
            known("q_mv_channels", config.q_mv_channels),
            config.q_s_channels,
            known("kv_mv_channels", config.kv_mv_channels),
            config.kv_s_channels,
            **config.heads(),
            **output(config),
        )
        self.config = config

    @in_float32
    def forward(  # type: ignore[override]
        self,
        multivectors_q: Tensor,
        multivectors_kv: Tensor,
        scalars_q: Tensor | None = None,
        scalars_kv: Tensor | None = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Attends.

        Args:
            multivectors_q: the items ``[*batch, items, q_mv_channels, 16]``.
            multivectors_kv: those that they attend to, ``[*batch, others, kv_mv_channels, 16]``.
            scalars_q: scalars of the items.
            scalars_kv: scalars of the others.
            attn_kwargs: see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        out = super().forward(
            enter("multivectors_q", multivectors_q, self.config.q_mv_channels),
            enter("multivectors_kv", multivectors_kv, self.config.kv_mv_channels),
            scalars_q,
            scalars_kv,
            **attention_options(attn_kwargs, cross=True),
        )
        return leave(out)
