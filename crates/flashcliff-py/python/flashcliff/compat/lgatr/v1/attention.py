"""Attention of lgatr 1.4, with tensors ``[*batch, items, channels, 16]``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import extra, known, output
from ..._zero_scalars import with_empty
from ..layers.attention import OfItems
from ..options import attention_options
from ..precision import in_float32
from .config import CrossAttentionConfig, SelfAttentionConfig, gatr_config

__all__ = ["CrossAttention", "SelfAttention", "with_empty_condition"]


class SelfAttention(OfItems, transformer.SelfAttention):  # type: ignore[misc]
    """Multi-head self-attention of multivectors ``[*batch, items, channels, 16]`` and scalars ``[*batch, items,
    scalars]``.

    Args:
        config: the sizes; it must say ``in_mv_channels`` and ``out_mv_channels``.
    """

    def __init__(self, config: SelfAttentionConfig) -> None:
        config = SelfAttentionConfig.cast(config)
        super().__init__(
            gatr_config.geometry,
            known("in_mv_channels", config.in_mv_channels),
            config.in_s_channels or 0,
            **config.heads(),
            **extra(config),
            **output(config),
        )
        self.config = config
        self.in_mv_channels = config.in_mv_channels

    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        additional_qk_features_mv: Tensor | None = None,
        scalars: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Attends.

        Args:
            multivectors: the items.
            additional_qk_features_mv: channels that queries and keys see too, ``[*batch, items, more, 16]``.
            scalars: scalars of the items.
            additional_qk_features_s: scalars that queries and keys see too.
            attn_kwargs: see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        more, more_s = additional_qk_features_mv, additional_qk_features_s
        return super().forward(multivectors, scalars, more, more_s, **attn_kwargs)


class CrossAttention(transformer.CrossAttention):
    """Multi-head attention of multivectors ``[*batch, items, channels, 16]`` to the multivectors of another set.

    Queries, keys and values are not normalised, unlike in lgatr 2.0.

    Args:
        config: the sizes; it must say ``in_q_mv_channels``, ``in_kv_mv_channels`` and ``out_mv_channels``.
    """

    def __init__(self, config: CrossAttentionConfig) -> None:
        config = CrossAttentionConfig.cast(config)
        super().__init__(
            gatr_config.geometry,
            known("in_q_mv_channels", config.in_q_mv_channels),
            config.in_q_s_channels or 0,
            known("in_kv_mv_channels", config.in_kv_mv_channels),
            config.in_kv_s_channels or 0,
            **config.heads(),
            **output(config),
        )
        with_empty_condition(self, config.in_q_s_channels, config.in_kv_s_channels)
        self.config = config

    @in_float32
    def forward(  # type: ignore[override]
        self,
        multivectors_kv: Tensor,
        multivectors_q: Tensor,
        scalars_kv: Tensor | None = None,
        scalars_q: Tensor | None = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Attends.

        Args:
            multivectors_kv: what is attended to, ``[*batch, others, in_kv_mv_channels, 16]``.
            multivectors_q: the items ``[*batch, items, in_q_mv_channels, 16]``.
            scalars_kv: scalars of what is attended to.
            scalars_q: scalars of the items.
            attn_kwargs: see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        out = super().forward(
            enter("multivectors_q", multivectors_q, self.config.in_q_mv_channels),
            enter("multivectors_kv", multivectors_kv, self.config.in_kv_mv_channels),
            scalars_q,
            scalars_kv,
            **attention_options(attn_kwargs, cross=True),
        )
        return leave(out)


def with_empty_condition(
    attention: transformer.CrossAttention, scalars: int | None, condition: int | None
) -> None:
    """Gives cross-attention the parameters of lgatr 1.4 for a condition of 0 scalar channels."""
    if scalars and condition is None:
        raise ValueError(
            "scalar channels of the condition: expected a number, which may be 0, as those of the items are one, "
            "got None"
        )
    if scalars:
        linear = attention.kv_linear
        attention.kv_linear = with_empty(linear, condition, linear.out_scalars)
