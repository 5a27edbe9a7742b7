"""Self-attention and cross-attention in L-GATr's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import known
from ..config import CrossAttentionConfig, PrimitivesConfig, SelfAttentionConfig
from ..options import attention_options
from ..precision import in_float32
from .linear import Primitives

__all__ = ["CrossAttention", "SelfAttention"]


class SelfAttention(transformer.SelfAttention):
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
            extra_channels=config.additional_qk_mv_channels,
            extra_scalars=config.additional_qk_s_channels,
            dropout=config.dropout_prob,
            initialization=config.output_init,
            out_channels=known("out_mv_channels", config.out_mv_channels),
            out_scalars=config.out_s_channels,
        )
        self.config = config

    @in_float32
    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Attends.

        Args:
            multivectors: the items.
            scalars: their scalars.
            additional_qk_features_mv: channels that queries and keys see too, ``[*batch, items, more, 16]``.
            additional_qk_features_s: scalars that they see too.
            attn_kwargs: see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        extra = additional_qk_features_mv
        out = super().forward(
            enter("multivectors", multivectors, self.config.in_mv_channels),
            scalars,
            None if extra is None else enter("additional_qk_features_mv", extra),
            additional_qk_features_s,
            **attention_options(attn_kwargs),
        )
        return leave(out)


class CrossAttention(transformer.CrossAttention):
    """Multi-head attention of multivectors ``[*batch, items, channels, 16]`` to those of another set.

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
            dropout=config.dropout_prob,
            initialization=config.output_init,
            out_channels=known("out_mv_channels", config.out_mv_channels),
            out_scalars=config.out_s_channels,
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
