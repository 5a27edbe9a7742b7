"""The network L-GATr-slim with a condition.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...._ops import checks
from ..compiling import compile_network
from ..layers.slim_blocks import ConditionalSlimBlock, freeze_unread
from ..layers.slim_version import VectorsScalars
from .slim_base import Slim

__all__ = ["ConditionalLGATrSlim"]


class ConditionalLGATrSlim(Slim):
    """L-GATr-slim with cross-attention to a condition in each block.

    Shapes: as for :class:`LGATrSlim`, and for the condition ``[*batch, others, v_channels_cond, 4]`` and ``[*batch,
    others, s_channels_cond]``. The state dict is that of lgatr 2.0.

    Args:
        num_blocks: blocks.
        in_v_channels: vector channels of the input.
        v_channels_cond: vector channels of the condition.
        out_v_channels: vector channels of the output; may be 0.
        hidden_v_channels: vector channels of the blocks.
        in_s_channels: scalar channels of the input.
        s_channels_cond: scalar channels of the condition.
        out_s_channels: scalar channels of the output; may be 0.
        hidden_s_channels: scalar channels of the blocks.
        num_heads and all others: as for :class:`LGATrSlim`.
    """

    def __init__(
        self,
        num_blocks: int,
        in_v_channels: int,
        v_channels_cond: int,
        out_v_channels: int,
        hidden_v_channels: int,
        in_s_channels: int,
        s_channels_cond: int,
        out_s_channels: int,
        hidden_s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: str | None = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
        norm_elementwise_affine: bool = True,
        checkpoint_blocks: bool = False,
        naive_amp: bool = False,
        compile: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
        activation_memory_budget: float | None = None,
    ) -> None:
        options = nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp

        def block() -> ConditionalSlimBlock:
            return ConditionalSlimBlock(
                hidden_v_channels,
                v_channels_cond,
                hidden_s_channels,
                s_channels_cond,
                num_heads,
                *options,
                dropout_prob,
                norm_elementwise_affine,
                version=self.version,
            )

        super().__init__(
            num_blocks,
            block,
            (in_v_channels, out_v_channels, hidden_v_channels),
            (in_s_channels, out_s_channels, hidden_s_channels),
            checkpoint_blocks,
            (v_channels_cond, s_channels_cond),
        )
        self.naive_amp = checks.flag("naive_amp", naive_amp)
        if num_blocks and not self.version.shared_norm:
            last = self.blocks[-1]
            freeze_unread(last.norm3, last.mlp, out_v_channels, out_s_channels)  # type: ignore[arg-type]
        if checks.flag("compile", compile):
            compile_network(self, compile_kwargs, activation_memory_budget)

    def forward(
        self,
        vectors: Tensor,
        vectors_cond: Tensor,
        scalars: Tensor,
        scalars_cond: Tensor,
        attn_kwargs: Mapping[str, Any] | None = None,
        crossattn_kwargs: Mapping[str, Any] | None = None,
    ) -> VectorsScalars:
        """From vectors ``[*batch, items, in_v_channels, 4]`` and scalars ``[*batch, items, in_s_channels]`` to
        ``out_v_channels`` and ``out_s_channels``.

        ``attn_kwargs`` are of self-attention, ``crossattn_kwargs`` of cross-attention, see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        condition = {"vectors_cond": vectors_cond, "scalars_cond": scalars_cond}
        return self.run((vectors, scalars), attn_kwargs or {}, condition, crossattn_kwargs)
