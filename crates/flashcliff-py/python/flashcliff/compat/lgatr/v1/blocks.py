"""Blocks of lgatr 1.4, with tensors ``[*batch, items, channels, 16]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import extra
from ..layers.attention import OfItems
from ..options import attention_options
from ..precision import in_float32
from .attention import with_empty_condition
from .config import CrossAttentionConfig, MLPConfig, SelfAttentionConfig, gatr_config

__all__ = ["ConditionalLGATrBlock", "LGATrBlock"]


class LGATrBlock(OfItems, transformer.Block):  # type: ignore[misc]
    """Self-attention and an MLP of multivectors ``[*batch, items, mv_channels, 16]`` and scalars ``[*batch, items,
    s_channels]``, each after a norm and with a residual.

    Args:
        mv_channels: multivector channels.
        s_channels: scalar channels, or ``None``.
        attention: sizes of the attention.
        mlp: sizes of the MLP.
        dropout_prob: probability of dropout.
    """

    def __init__(
        self,
        mv_channels: int,
        s_channels: int | None,
        attention: SelfAttentionConfig,
        mlp: MLPConfig,
        dropout_prob: float | None = None,
    ) -> None:
        attention = SelfAttentionConfig.cast(attention)
        super().__init__(
            gatr_config.geometry,
            mv_channels,
            s_channels or 0,
            attention={**attention.heads(), **extra(attention)},
            dropout=dropout_prob,
            shared_norm=True,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.in_mv_channels = mv_channels


class ConditionalLGATrBlock(transformer.ConditionalBlock):
    """Self-attention, cross-attention to a condition and an MLP, each after a norm and with a residual.

    Args:
        mv_channels: multivector channels.
        s_channels: scalar channels, or ``None``.
        condition_mv_channels: multivector channels of the condition.
        condition_s_channels: scalar channels of the condition, or ``None``.
        attention: sizes of the self-attention.
        crossattention: sizes of the cross-attention.
        mlp: sizes of the MLP.
        dropout_prob: probability of dropout.
    """

    def __init__(
        self,
        mv_channels: int,
        s_channels: int | None,
        condition_mv_channels: int,
        condition_s_channels: int | None,
        attention: SelfAttentionConfig,
        crossattention: CrossAttentionConfig,
        mlp: MLPConfig,
        dropout_prob: float | None = None,
    ) -> None:
        super().__init__(
            gatr_config.geometry,
            mv_channels,
            s_channels or 0,
            condition_mv_channels,
            condition_s_channels or 0,
            attention=SelfAttentionConfig.cast(attention).heads(),
            cross_attention=CrossAttentionConfig.cast(crossattention).heads(),
            dropout=dropout_prob,
            shared_norm=True,
            **MLPConfig.cast(mlp).arguments(),
        )
        with_empty_condition(self.crossattention, s_channels, condition_s_channels)
        self.mv_channels = mv_channels, condition_mv_channels

    @in_float32
    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        multivectors_condition: Tensor,
        scalars: Tensor | None = None,
        scalars_condition: Tensor | None = None,
        attn_kwargs: Mapping[str, Any] | None = None,
        crossattn_kwargs: Mapping[str, Any] | None = None,
    ) -> Pair:
        """Applies the block.

        Args:
            multivectors: the items ``[*batch, items, mv_channels, 16]``.
            multivectors_condition: the condition ``[*batch, others, condition_mv_channels, 16]``.
            scalars: scalars of the items.
            scalars_condition: scalars of the condition.
            attn_kwargs: of self-attention, see :func:`flashcliff.compat.lgatr.attention_options`.
            crossattn_kwargs: of cross-attention.
        """
        if scalars_condition is not None and scalars_condition.shape[-1] == 0:
            scalars_condition = None
        out = super().forward(
            enter("multivectors", multivectors, self.mv_channels[0]),
            enter("multivectors_condition", multivectors_condition, self.mv_channels[1]),
            scalars,
            scalars_condition,
            options=attention_options(attn_kwargs or {}),
            cross_options=attention_options(crossattn_kwargs or {}, cross=True),
        )
        return leave(out)
