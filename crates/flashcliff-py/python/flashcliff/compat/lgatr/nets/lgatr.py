"""The network L-GATr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ...._ops import checks
from ....nn import transformer
from ....nn.transformer.network import indices_of, reinserted_scalars
from ..._blades_last import Pair, enter, leave
from ..compiling import compile_network
from ..config import MLPConfig, PrimitivesConfig, SelfAttentionConfig
from ..layers.linear import Primitives
from ..options import attention_options
from ..precision import in_float32

__all__ = ["LGATr"]


class Network(transformer.GATransformer):
    """A network without a condition, for tensors ``[*batch, items, channels, 16]``."""

    @in_float32
    def forward(  # type: ignore[override]
        self, multivectors: Tensor, scalars: Tensor | None = None, **attn_kwargs: Any
    ) -> Pair:
        """From multivectors ``[*batch, items, in_mv_channels, 16]`` and scalars ``[*batch, items, in_s_channels]``
        to ``out_mv_channels`` and ``out_s_channels``; for ``attn_kwargs`` see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        mv = enter("multivectors", multivectors, self.in_channels).contiguous()
        out, out_s = leave(super().forward(mv, scalars, **attention_options(attn_kwargs)))
        return out.contiguous(), out_s


class LGATr(Network):
    """L-GATr: a linear layer, blocks of attention and MLPs, a linear layer. It commutes with Lorentz transformations.

    Shapes:
        - multivectors ``[*batch, items, in_mv_channels, 16]`` to ``[*batch, items, out_mv_channels, 16]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``, or ``None``

    The layout changes once at the entry and once at the exit, so the modules within take ``[16, *batch, items,
    channels]``. The state dict is that of lgatr 2.0.

    Args:
        num_blocks: blocks.
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output; may be 0.
        hidden_mv_channels: multivector channels of the blocks.
        in_s_channels: scalar channels of the input; may be 0.
        out_s_channels: scalar channels of the output; may be 0.
        hidden_s_channels: scalar channels of the blocks; may be 0, also with products, unlike in lgatr 2.0.
        attention: sizes of the attention.
        mlp: sizes of the MLPs.
        primitives: the group.
        reinsert_mv_channels: input channels that queries and keys of every block see.
        reinsert_s_channels: input scalars that they see.
        dropout_prob: probability of dropout.
        norm_elementwise_affine: whether the norms of blocks have gains.
        checkpoint_blocks: whether blocks are computed again in the backward pass.
        naive_amp: under autocast, whether layers that are called one by one run in its type. A network that is one function
            computes in float32 there, scalars included, which lgatr 2.0 leaves in the low type; with ``naive_amp`` it trains on a
            GPU with tokens of autocast's type between its steps.
        compile: whether :func:`torch.compile` is applied.
        compile_kwargs: its arguments.
        activation_memory_budget: PyTorch's setting of that name, while the network is compiled.

    Source: arXiv 2405.14806.
    """

    def __init__(
        self,
        num_blocks: int,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        hidden_s_channels: int,
        attention: SelfAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        primitives: Primitives | None = None,
        reinsert_mv_channels: Sequence[int] | None = None,
        reinsert_s_channels: Sequence[int] | None = None,
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
            in_mv_channels,
            out_mv_channels,
            hidden_mv_channels,
            in_s_channels,
            out_s_channels,
            hidden_s_channels,
            blocks=num_blocks,
            attention=SelfAttentionConfig.cast(attention).heads(),
            reinsert_channels=indices_of(
                "reinsert_mv_channels", reinsert_mv_channels, in_mv_channels
            ),
            reinsert_scalars=reinserted_scalars(
                "reinsert_s_channels", reinsert_s_channels, in_s_channels, hidden_s_channels
            ),
            affine=norm_elementwise_affine,
            dropout=dropout_prob,
            checkpoint_blocks=checkpoint_blocks,
            **MLPConfig.cast(mlp).arguments(),
        )
        self.primitives = chosen
        self.naive_amp = checks.flag("naive_amp", naive_amp)
        if checks.flag("compile", compile):
            compile_network(self, compile_kwargs, activation_memory_budget)
