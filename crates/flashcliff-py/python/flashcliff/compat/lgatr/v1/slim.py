"""The networks of L-GATr-slim of lgatr 1.4.

Norms have no gains, queries, keys and values have biases, and one nonlinearity, with the exact GELU, gates vectors and
scalars.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .. import nets
from ..layers.slim_version import V1, VectorsScalars

__all__ = ["ConditionalLGATrSlim", "LGATrSlim"]


class LGATrSlim(nets.LGATrSlim):
    """L-GATr-slim: a linear layer, blocks of attention and MLPs, a linear layer.

    Shapes:
        - vectors ``[*batch, items, in_v_channels, 4]``, as ``(t, x, y, z)``, to ``[*batch, items, out_v_channels, 4]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``

    The state dict is that of lgatr 1.4.

    Args:
        nonlinearity: of the gates in the MLPs.
        compile_mode: the ``mode`` of :func:`torch.compile`.
        compile_dynamic: its ``dynamic``.
        in_v_channels and all others: as for :class:`flashcliff.compat.lgatr.LGATrSlim`.
    """

    version = V1

    def __init__(
        self,
        in_v_channels: int,
        out_v_channels: int,
        hidden_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        hidden_s_channels: int,
        num_blocks: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
        checkpoint_blocks: bool = False,
        compile: bool = False,
        compile_mode: str = "default",
        compile_dynamic: bool = True,
    ) -> None:
        super().__init__(
            num_blocks,
            in_v_channels,
            out_v_channels,
            hidden_v_channels,
            in_s_channels,
            out_s_channels,
            hidden_s_channels,
            num_heads,
            nonlinearity,
            None,
            mlp_ratio,
            attn_ratio,
            num_layers_mlp,
            dropout_prob,
            checkpoint_blocks=checkpoint_blocks,
            compile=compile,
            compile_kwargs={"mode": compile_mode, "dynamic": compile_dynamic},
        )


class ConditionalLGATrSlim(nets.ConditionalLGATrSlim):
    """L-GATr-slim with cross-attention to a condition in each block.

    Shapes: as for :class:`LGATrSlim`, and for the condition ``[*batch, others, condition_v_channels, 4]`` and
    ``[*batch, others, condition_s_channels]``. The state dict is that of lgatr 1.4.

    Args:
        in_v_channels: vector channels of the input.
        condition_v_channels: vector channels of the condition.
        out_v_channels: vector channels of the output.
        hidden_v_channels: vector channels of the blocks.
        in_s_channels: scalar channels of the input.
        condition_s_channels: scalar channels of the condition.
        out_s_channels: scalar channels of the output.
        hidden_s_channels: scalar channels of the blocks.
        num_blocks and all others: as for :class:`LGATrSlim`.
    """

    version = V1

    def __init__(
        self,
        in_v_channels: int,
        condition_v_channels: int,
        out_v_channels: int,
        hidden_v_channels: int,
        in_s_channels: int,
        condition_s_channels: int,
        out_s_channels: int,
        hidden_s_channels: int,
        num_blocks: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
        checkpoint_blocks: bool = False,
        compile: bool = False,
        compile_mode: str = "default",
        compile_dynamic: bool = True,
    ) -> None:
        super().__init__(
            num_blocks,
            in_v_channels,
            condition_v_channels,
            out_v_channels,
            hidden_v_channels,
            in_s_channels,
            condition_s_channels,
            out_s_channels,
            hidden_s_channels,
            num_heads,
            nonlinearity,
            None,
            mlp_ratio,
            attn_ratio,
            num_layers_mlp,
            dropout_prob,
            checkpoint_blocks=checkpoint_blocks,
            compile=compile,
            compile_kwargs={"mode": compile_mode, "dynamic": compile_dynamic},
        )

    def forward(  # type: ignore[override]
        self,
        vectors: Tensor,
        vectors_condition: Tensor,
        scalars: Tensor,
        scalars_condition: Tensor,
        attn_kwargs: Mapping[str, Any] | None = None,
        crossattn_kwargs: Mapping[str, Any] | None = None,
    ) -> VectorsScalars:
        """From vectors ``[*batch, items, in_v_channels, 4]`` and scalars ``[*batch, items, in_s_channels]`` to
        ``out_v_channels`` and ``out_s_channels``.

        ``attn_kwargs`` are of self-attention, ``crossattn_kwargs`` of cross-attention, see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        condition = {"vectors_condition": vectors_condition, "scalars_condition": scalars_condition}
        return self.run((vectors, scalars), attn_kwargs or {}, condition, crossattn_kwargs)
