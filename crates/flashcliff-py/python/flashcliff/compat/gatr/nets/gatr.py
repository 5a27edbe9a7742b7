"""The network GATr."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ....nn import transformer
from ....nn.transformer.network import indices_of
from ..._blades_last import Pair, enter, leave
from ..._zero_scalars import with_empty
from ..config import GEOMETRY, MLPConfig, SelfAttentionConfig
from ..layers.block import block_arguments
from ..masks import attention_options
from ..reference import reference_component

__all__ = ["GATr"]


class GATr(transformer.GATransformer):
    """GATr: a linear layer, blocks of attention and MLPs, a linear layer. It commutes with rotations, translations and
    reflections of space.

    Shapes:
        - multivectors ``[*batch, items, in_mv_channels, 16]`` to ``[*batch, items, out_mv_channels, 16]``
        - scalars ``[*batch, items, in_s_channels]`` to ``[*batch, items, out_s_channels]``, or ``None``

    The layout changes once at the entry and once at the exit, so the modules within take ``[16, *batch, items,
    channels]``. The state dict is GATr's.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        hidden_mv_channels: multivector channels of the blocks.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.
        hidden_s_channels: scalar channels of the blocks, or ``None``, unlike in GATr.
        attention: sizes of the attention.
        mlp: the activation of the MLPs.
        num_blocks: blocks.
        reinsert_mv_channels: input channels that queries and keys of every block see.
        reinsert_s_channels: input scalars that they see.
        checkpoint_blocks: an earlier form of ``checkpoint=["block"]``.
        dropout_prob: probability of dropout.
        checkpoint: what is computed again in the backward pass: ``["block"]``, or ``"mlp"`` and ``"attention"``.

    Source: arXiv 2305.18415.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int | None,
        out_s_channels: int | None,
        hidden_s_channels: int | None,
        attention: SelfAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        num_blocks: int = 10,
        reinsert_mv_channels: Sequence[int] | None = None,
        reinsert_s_channels: Sequence[int] | None = None,
        checkpoint_blocks: bool = False,
        dropout_prob: float | None = None,
        checkpoint: Sequence[str] | None = None,
    ) -> None:
        parts = _parts(checkpoint, checkpoint_blocks)
        if reinsert_s_channels and not (in_s_channels and hidden_s_channels):
            raise ValueError(
                "reinsert_s_channels: expected None without scalars in the input and in the blocks, "
                f"got {reinsert_s_channels}"
            )
        super().__init__(
            GEOMETRY,
            in_mv_channels,
            out_mv_channels,
            hidden_mv_channels,
            in_s_channels or 0,
            out_s_channels or 0,
            hidden_s_channels or 0,
            blocks=num_blocks,
            reinsert_channels=indices_of(
                "reinsert_mv_channels", reinsert_mv_channels, in_mv_channels
            ),
            reinsert_scalars=indices_of(
                "reinsert_s_channels", reinsert_s_channels, in_s_channels or 0
            ),
            dropout=dropout_prob,
            checkpoint_blocks="block" in parts,
            **block_arguments(SelfAttentionConfig.cast(attention), MLPConfig.cast(mlp)),
        )
        inner = hidden_s_channels or None
        self.linear_in = with_empty(self.linear_in, in_s_channels, inner)
        self.linear_out = with_empty(self.linear_out, inner, out_s_channels)
        for block in self.blocks:
            assert isinstance(block, transformer.Block)
            block.checkpoint = tuple(part for part in parts if part != "block")

    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        attention_mask: Any = None,
        join_reference: Tensor | str = "data",
        *,
        cu_seqlens: Tensor | transformer.Sequences | None = None,
    ) -> Pair:
        """Applies the network.

        Args:
            multivectors: the input.
            scalars: its scalars. A tensor where the network has no scalar inputs, and ``None`` where it has some, are
                errors; GATr ignores both.
            attention_mask: see :func:`flashcliff.compat.gatr.attention_options`.
            join_reference: the reference multivector of the join: ``"data"``, the mean of the input over all axes but
                the first, in which padded items count as in GATr; ``"canonical"``; or a tensor that broadcasts to
                ``[*batch, items, 1, 16]``.
            cu_seqlens: boundaries of the graphs of a **ragged batch** ``[items, in_mv_channels, 16]``, ``[graphs + 1]``
                integers from 0 to the number of items, or :class:`flashcliff.nn.transformer.Sequences`. Items attend
                within their graph, and ``"data"`` is the mean of each graph, so the output of a graph does not depend
                on the others. With a ``BlockDiagonalMask`` it is as in GATr: the mean over all graphs.
        """
        mv = enter("multivectors", multivectors, self.in_channels)
        if mv.dim() < 3:
            raise ValueError(
                f"multivectors: expected [*batch, items, channels, 16], got {list(multivectors.shape)}"
            )
        options = attention_options(attention_mask, cu_seqlens, shape=mv.shape[1:-1])
        ragged = None if cu_seqlens is None else options["cu_seqlens"]
        reference = reference_component(join_reference, mv, ragged)
        out = super().forward(mv.contiguous(), scalars, reference=reference, **options)
        out_mv, out_s = leave(out)
        return out_mv.contiguous(), out_s


def _parts(checkpoint: Sequence[str] | None, blocks: bool) -> tuple[str, ...]:
    if blocks:
        if checkpoint is not None:
            raise ValueError(
                f"checkpoint: expected None with checkpoint_blocks, got {checkpoint!r}"
            )
        warnings.warn(
            'checkpoint_blocks=True is an earlier form: write checkpoint=["block"]',
            DeprecationWarning,
            stacklevel=3,
        )
        return ("block",)
    wrong = isinstance(checkpoint, str) or not set(checkpoint or ()) <= {
        "block",
        "mlp",
        "attention",
    }
    if wrong or ("block" in (checkpoint or ()) and len(set(checkpoint or ())) > 1):
        raise ValueError(
            f'checkpoint: expected ["block"], or "mlp" and "attention", got {checkpoint!r}'
        )
    return tuple(checkpoint or ())
