"""The network L-GATr with a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...._ops import checks
from ....nn import transformer
from ....nn.transformer.described import Description, Tokens, Variant, computed_again
from ....nn.transformer.geometry import check_scalars
from ..._blades_last import Pair, enter, leave
from ..compiling import compile_network
from ..config import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig
from ..layers.linear import Primitives
from ..options import attention_options
from ..precision import in_float32

__all__ = ["Conditional", "ConditionalLGATr"]


class Conditional(nn.Module):
    """A linear layer, conditional blocks, a linear layer, in L-GATr's layout.

    Args:
        geometry: the algebra and its group.
        blocks: how many blocks.
        channels: multivector channels of input, condition, output and blocks.
        scalars: scalar channels of the same.
        checkpoint_blocks: whether blocks are computed again in the backward pass.
        arguments: as for :class:`flashcliff.nn.transformer.ConditionalBlock`.
    """

    naive_amp = False

    def __init__(
        self,
        geometry: transformer.Geometry,
        blocks: int,
        channels: tuple[int, int, int, int],
        scalars: tuple[int, int, int, int],
        checkpoint_blocks: bool,
        **arguments: Any,
    ) -> None:
        super().__init__()
        self.geometry = geometry
        of_input, of_condition, of_output, hidden = channels
        input_s, condition_s, output_s, hidden_s = scalars
        self.linear_in = transformer.EquiLinear(geometry, of_input, hidden, input_s, hidden_s)
        self.blocks = nn.ModuleList(
            transformer.ConditionalBlock(
                geometry, hidden, hidden_s, of_condition, condition_s, **arguments
            )
            for _ in range(checks.count("num_blocks", blocks))
        )
        self.linear_out = transformer.EquiLinear(geometry, hidden, of_output, hidden_s, output_s)
        self.in_channels, self.condition_channels = of_input, of_condition
        self._condition = of_condition, condition_s
        self.checkpoint_blocks = checks.flag("checkpoint_blocks", checkpoint_blocks)

    def variant(self) -> Variant:
        """The call that the network was made for, without masks."""
        channels = self.linear_in.in_channels, self.linear_in.in_scalars
        return Variant(channels, context=self._condition)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the network to another one."""
        return network.calls((self.linear_in, *self.blocks, self.linear_out), x)

    @in_float32
    def run(
        self,
        multivectors: Tensor,
        condition: Tensor,
        scalars: Tensor | None,
        condition_scalars: Tensor | None,
        options: Mapping[str, Any] | None,
        cross_options: Mapping[str, Any] | None,
        name: str,
    ) -> Pair:
        """Applies the network. ``name`` is what errors call the condition."""
        mv = enter("multivectors", multivectors, self.in_channels).contiguous()
        other = enter(name, condition, self.condition_channels).contiguous()
        if condition_scalars is not None:
            check_scalars(name.replace("multivectors", "scalars"), condition_scalars)
            if condition_scalars.shape[-1] == 0:
                condition_scalars = None
        of_self = attention_options(options or {})
        of_cross = attention_options(cross_options or {}, cross=True)
        here: Pair = self.linear_in(mv, scalars)
        for block in self.blocks:
            arguments = (here[0], other, here[1], condition_scalars, None, of_self, of_cross)
            if self.checkpoint_blocks and torch.is_grad_enabled():
                here = computed_again(block, *arguments)
            else:
                here = block(*arguments)
        out, out_s = leave(self.linear_out(*here))
        return out.contiguous(), out_s


class ConditionalLGATr(Conditional):
    """L-GATr with cross-attention to a condition in each block.

    Shapes:
        - multivectors ``[*batch, items, in_mv_channels, 16]`` to ``[*batch, items, out_mv_channels, 16]``
        - ``multivectors_cond`` ``[*batch, others, mv_channels_cond, 16]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``, or ``None``
        - ``scalars_cond`` ``[*batch, others, s_channels_cond]``

    The state dict is that of lgatr 2.0.

    Args:
        num_blocks: blocks.
        in_mv_channels: multivector channels of the input.
        mv_channels_cond: multivector channels of the condition.
        out_mv_channels: multivector channels of the output; may be 0.
        hidden_mv_channels: multivector channels of the blocks.
        in_s_channels: scalar channels of the input; may be 0.
        s_channels_cond: scalar channels of the condition; may be 0.
        out_s_channels: scalar channels of the output; may be 0.
        hidden_s_channels: scalar channels of the blocks; may be 0.
        attention: sizes of the self-attention.
        crossattention: sizes of the cross-attention.
        mlp: sizes of the MLPs.
        primitives, dropout_prob, norm_elementwise_affine, checkpoint_blocks: as for :class:`LGATr`.
        naive_amp, compile, compile_kwargs, activation_memory_budget: as for :class:`LGATr`.

    Source: arXiv 2405.14806.
    """

    def __init__(
        self,
        num_blocks: int,
        in_mv_channels: int,
        mv_channels_cond: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int,
        s_channels_cond: int,
        out_s_channels: int,
        hidden_s_channels: int,
        attention: SelfAttentionConfig | Mapping[str, Any],
        crossattention: CrossAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        primitives: Primitives | None = None,
        dropout_prob: float | None = None,
        norm_elementwise_affine: bool = True,
        checkpoint_blocks: bool = False,
        naive_amp: bool = False,
        compile: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
        activation_memory_budget: float | None = None,
    ) -> None:
        chosen = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        super().__init__(
            chosen.geometry,
            num_blocks,
            (in_mv_channels, mv_channels_cond, out_mv_channels, hidden_mv_channels),
            (in_s_channels, s_channels_cond, out_s_channels, hidden_s_channels),
            checkpoint_blocks,
            attention=SelfAttentionConfig.cast(attention).heads(),
            cross_attention=CrossAttentionConfig.cast(crossattention).heads(),
            affine=norm_elementwise_affine,
            dropout=dropout_prob,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.primitives = chosen
        self.naive_amp = checks.flag("naive_amp", naive_amp)
        if checks.flag("compile", compile):
            compile_network(self, compile_kwargs, activation_memory_budget)

    def forward(
        self,
        multivectors: Tensor,
        multivectors_cond: Tensor,
        scalars: Tensor | None = None,
        scalars_cond: Tensor | None = None,
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
            multivectors_cond,
            scalars,
            scalars_cond,
            attn_kwargs,
            crossattn_kwargs,
            "multivectors_cond",
        )
