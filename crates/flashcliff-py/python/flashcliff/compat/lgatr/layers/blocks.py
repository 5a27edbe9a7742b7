"""Blocks in L-GATr's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import extra
from ..config import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig
from ..options import attention_options
from ..precision import in_float32
from .attention import OfItems
from .linear import Primitives

__all__ = ["ConditionalLGATrBlock", "LGATrBlock"]


class LGATrBlock(OfItems, transformer.Block):  # type: ignore[misc]
    """Self-attention and an MLP of multivectors ``[*batch, items, mv_channels, 16]`` and scalars ``[*batch, items,
    s_channels]``, each after a norm and with a residual.

    Args:
        mv_channels: multivector channels.
        s_channels: scalar channels; may be 0.
        attention: sizes of the attention.
        mlp: sizes of the MLP.
        primitives: the group.
        dropout_prob: probability of dropout.
        norm_elementwise_affine: whether the norms have gains.
    """

    def __init__(
        self,
        mv_channels: int,
        s_channels: int,
        attention: SelfAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        primitives: Primitives,
        dropout_prob: float | None = None,
        norm_elementwise_affine: bool = True,
    ) -> None:
        attention = SelfAttentionConfig.cast(attention)
        super().__init__(
            PrimitivesConfig.cast(primitives).geometry,
            mv_channels,
            s_channels,
            attention={**attention.heads(), **extra(attention)},
            affine=norm_elementwise_affine,
            dropout=dropout_prob,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.in_mv_channels = mv_channels


class ConditionalLGATrBlock(transformer.ConditionalBlock):
    """Self-attention, cross-attention to a condition and an MLP, each after a norm and with a residual.

    Args:
        mv_channels: multivector channels.
        s_channels: scalar channels; may be 0.
        mv_channels_cond: multivector channels of the condition.
        s_channels_cond: scalar channels of the condition; may be 0.
        attention: sizes of the self-attention.
        crossattention: sizes of the cross-attention.
        mlp: sizes of the MLP.
        primitives: the group.
        dropout_prob: probability of dropout.
        norm_elementwise_affine: whether the norms have gains.
    """

    def __init__(
        self,
        mv_channels: int,
        s_channels: int,
        mv_channels_cond: int,
        s_channels_cond: int,
        attention: SelfAttentionConfig | Mapping[str, Any],
        crossattention: CrossAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        primitives: Primitives,
        dropout_prob: float | None = None,
        norm_elementwise_affine: bool = True,
    ) -> None:
        super().__init__(
            PrimitivesConfig.cast(primitives).geometry,
            mv_channels,
            s_channels,
            mv_channels_cond,
            s_channels_cond,
            attention=SelfAttentionConfig.cast(attention).heads(),
            cross_attention=CrossAttentionConfig.cast(crossattention).heads(),
            affine=norm_elementwise_affine,
            dropout=dropout_prob,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.mv_channels = mv_channels, mv_channels_cond

    @in_float32
    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        multivectors_cond: Tensor,
        scalars: Tensor | None = None,
        scalars_cond: Tensor | None = None,
        attn_kwargs: Mapping[str, Any] | None = None,
        crossattn_kwargs: Mapping[str, Any] | None = None,
    ) -> Pair:
        """Applies the block.

        Args:
            multivectors: the items ``[*batch, items, mv_channels, 16]``.
            multivectors_cond: the condition ``[*batch, others, mv_channels_cond, 16]``.
            scalars: scalars of the items.
            scalars_cond: scalars of the condition.
            attn_kwargs: of self-attention, see :func:`flashcliff.compat.lgatr.attention_options`.
            crossattn_kwargs: of cross-attention.
        """
        out = super().forward(
            enter("multivectors", multivectors, self.mv_channels[0]),
            enter("multivectors_cond", multivectors_cond, self.mv_channels[1]),
            scalars,
            scalars_cond,
            options=attention_options(attn_kwargs or {}),
            cross_options=attention_options(crossattn_kwargs or {}, cross=True),
        )
        return leave(out)
