"""The networks L-GATr of lgatr 1.4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ....nn.transformer.network import indices_of, reinserted_scalars
from ..._blades_last import Pair
from ..._zero_scalars import add_empty, with_empty
from ..nets.conditional import Conditional
from ..nets.lgatr import Network
from .attention import with_empty_condition
from .config import CrossAttentionConfig, MLPConfig, SelfAttentionConfig, gatr_config

__all__ = ["ConditionalLGATr", "LGATr"]


class LGATr(Network):
    """L-GATr: a linear layer, blocks of attention and MLPs, a linear layer. It commutes with Lorentz transformations.

    Shapes:
        - multivectors ``[*batch, items, in_mv_channels, 16]`` to ``[*batch, items, out_mv_channels, 16]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``, or ``None``

    The state dict is that of lgatr 1.4. Under autocast the network runs in float32, unless ``naive_amp`` of
    :mod:`flashcliff.compat.lgatr` is on.

    Args:
        num_blocks: blocks.
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        hidden_mv_channels: multivector channels of the blocks.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.
        hidden_s_channels: scalar channels of the blocks, or ``None``, unlike in lgatr 1.4.
        attention: sizes of the attention.
        mlp: sizes of the MLPs.
        reinsert_mv_channels: input channels that queries and keys of every block see.
        reinsert_s_channels: input scalars that they see.
        dropout_prob: probability of dropout.
        checkpoint_blocks: whether blocks are computed again in the backward pass.

    Source: arXiv 2405.14806.
    """

    def __init__(
        self,
        num_blocks: int,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int | None,
        out_s_channels: int | None,
        hidden_s_channels: int | None,
        attention: SelfAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        reinsert_mv_channels: Sequence[int] | None = None,
        reinsert_s_channels: Sequence[int] | None = None,
        dropout_prob: float | None = None,
        checkpoint_blocks: bool = False,
    ) -> None:
        super().__init__(
            gatr_config.geometry,
            in_mv_channels,
            out_mv_channels,
            hidden_mv_channels,
            in_s_channels or 0,
            out_s_channels or 0,
            hidden_s_channels or 0,
            blocks=num_blocks,
            attention=SelfAttentionConfig.cast(attention).heads(),
            reinsert_channels=indices_of(
                "reinsert_mv_channels", reinsert_mv_channels, in_mv_channels
            ),
            reinsert_scalars=reinserted_scalars(
                "reinsert_s_channels", reinsert_s_channels, in_s_channels or 0, hidden_s_channels or 0
            ),
            dropout=dropout_prob,
            checkpoint_blocks=checkpoint_blocks,
            shared_norm=True,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.linear_in = with_empty(self.linear_in, in_s_channels, hidden_s_channels)
        add_empty(self.linear_out, hidden_s_channels, out_s_channels)


class ConditionalLGATr(Conditional):
    """L-GATr with cross-attention to a condition in each block.

    Shapes:
        - multivectors ``[*batch, items, in_mv_channels, 16]`` to ``[*batch, items, out_mv_channels, 16]``
        - ``multivectors_condition`` ``[*batch, others, condition_mv_channels, 16]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``, or ``None``
        - ``scalars_condition`` ``[*batch, others, condition_s_channels]``

    The state dict is that of lgatr 1.4.

    Args:
        num_blocks: blocks.
        in_mv_channels: multivector channels of the input.
        condition_mv_channels: multivector channels of the condition.
        out_mv_channels: multivector channels of the output.
        hidden_mv_channels: multivector channels of the blocks.
        in_s_channels: scalar channels of the input, or ``None``.
        condition_s_channels: scalar channels of the condition; may be 0.
        out_s_channels: scalar channels of the output, or ``None``.
        hidden_s_channels: scalar channels of the blocks, or ``None``.
        attention: sizes of the self-attention.
        crossattention: sizes of the cross-attention.
        mlp: sizes of the MLPs.
        dropout_prob: probability of dropout.
        checkpoint_blocks: whether blocks are computed again in the backward pass.

    Source: arXiv 2405.14806.
    """

    def __init__(
        self,
        num_blocks: int,
        in_mv_channels: int,
        condition_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int | None,
        condition_s_channels: int | None,
        out_s_channels: int | None,
        hidden_s_channels: int | None,
        attention: SelfAttentionConfig | Mapping[str, Any],
        crossattention: CrossAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        dropout_prob: float | None = None,
        checkpoint_blocks: bool = False,
    ) -> None:
        super().__init__(
            gatr_config.geometry,
            num_blocks,
            (in_mv_channels, condition_mv_channels, out_mv_channels, hidden_mv_channels),
            (
                in_s_channels or 0,
                condition_s_channels or 0,
                out_s_channels or 0,
                hidden_s_channels or 0,
            ),
            checkpoint_blocks,
            attention=SelfAttentionConfig.cast(attention).heads(),
            cross_attention=CrossAttentionConfig.cast(crossattention).heads(),
            dropout=dropout_prob,
            shared_norm=True,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.linear_in = with_empty(self.linear_in, in_s_channels, hidden_s_channels)
        add_empty(self.linear_out, hidden_s_channels, out_s_channels)
        for block in self.blocks:
            attended: Any = block.crossattention
            with_empty_condition(attended, hidden_s_channels, condition_s_channels)

    def forward(
        self,
        multivectors: Tensor,
        multivectors_condition: Tensor,
        scalars: Tensor | None = None,
        scalars_condition: Tensor | None = None,
        attn_kwargs: Mapping[str, Any] | None = None,
        crossattn_kwargs: Mapping[str, Any] | None = None,
    ) -> Pair:
        """From multivectors ``[*batch, items, in_mv_channels, 16]`` and scalars ``[*batch, items, in_s_channels]``
        to ``out_mv_channels`` and ``out_s_channels``.

        ``attn_kwargs`` are of self-attention, ``crossattn_kwargs`` of cross-attention, see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        return self.run(
            multivectors,
            multivectors_condition,
            scalars,
            scalars_condition,
            attn_kwargs,
            crossattn_kwargs,
            "multivectors_condition",
        )
