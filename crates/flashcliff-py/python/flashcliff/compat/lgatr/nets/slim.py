"""The network L-GATr-slim, which has vectors and scalars in place of multivectors.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...._ops import checks
from ..compiling import compile_network
from ..layers.slim_blocks import SlimBlock, freeze_unread
from ..layers.slim_version import VectorsScalars
from .slim_base import Slim

__all__ = ["LGATrSlim"]


class LGATrSlim(Slim):
    """L-GATr-slim: a linear layer, blocks of attention and MLPs, a linear layer.

    Shapes:
        - vectors ``[*batch, items, in_v_channels, 4]``, as ``(t, x, y, z)``, to ``[*batch, items, out_v_channels, 4]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``; at least one channel

    The state dict is that of lgatr 2.0.

    Args:
        num_blocks: blocks.
        in_v_channels: vector channels of the input.
        out_v_channels: vector channels of the output; may be 0.
        hidden_v_channels: vector channels of the blocks.
        in_s_channels: scalar channels of the input.
        out_s_channels: scalar channels of the output; may be 0.
        hidden_s_channels: scalar channels of the blocks.
        num_heads: heads.
        nonlinearity: of the gates of scalars in the MLPs.
        nonlinearity_v: of the gates of vectors; the same for ``None``.
        mlp_ratio: hidden channels of the MLPs for each channel.
        attn_ratio: channels of all heads together, for each channel.
        num_layers_mlp: layers of each MLP, at least 2.
        dropout_prob: probability of dropout.
        norm_elementwise_affine: whether the norms of blocks have gains.
        checkpoint_blocks: whether blocks are computed again in the backward pass.
        naive_amp: under autocast, whether layers that are called one by one run in its type. If not, only linear maps of scalars do.
            A network that is one function computes in float32 under autocast; with ``naive_amp`` it trains on a GPU with tokens of
            autocast's type between its steps.
        compile: whether :func:`torch.compile` is applied.
        compile_kwargs: its arguments.
        activation_memory_budget: PyTorch's setting of that name, while the network is compiled.
    """

    def __init__(
        self,
        num_blocks: int,
        in_v_channels: int,
        out_v_channels: int,
        hidden_v_channels: int,
        in_s_channels: int,
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

        def block() -> SlimBlock:
            return SlimBlock(
                hidden_v_channels,
                hidden_s_channels,
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
        )
        self.naive_amp = checks.flag("naive_amp", naive_amp)
        if num_blocks and not self.version.shared_norm:
            last = self.blocks[-1]
            freeze_unread(last.norm2, last.mlp, out_v_channels, out_s_channels)  # type: ignore[arg-type]
        if checks.flag("compile", compile):
            compile_network(self, compile_kwargs, activation_memory_budget)

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> VectorsScalars:
        """From vectors ``[*batch, items, in_v_channels, 4]`` and scalars ``[*batch, items, in_s_channels]`` to
        ``out_v_channels`` and ``out_s_channels``; for ``attn_kwargs`` see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        return self.run((vectors, scalars), attn_kwargs)
