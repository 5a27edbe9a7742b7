"""The block in GATr's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import extra
from ..config import GEOMETRY, MLPConfig, SelfAttentionConfig
from ..masks import attention_options
from ..reference import component_of
from .mlp import activation_arguments

__all__ = ["GATrBlock", "block_arguments"]


class GATrBlock(transformer.Block):
    """Self-attention and an MLP of multivectors ``[*batch, items, mv_channels, 16]`` and scalars ``[*batch, items,
    s_channels]``, each after a norm and with a residual.

    ``norm``, ``attention`` and ``mlp`` are parts of the block, with hooks and parameters. Called by themselves they take multivectors with
    blades first, ``[16, *batch, items, mv_channels]``, unlike the parts of GATr's block.

    Args:
        mv_channels: multivector channels.
        s_channels: scalar channels, or ``None``, unlike in GATr.
        attention: sizes of the attention.
        mlp: the activation of the MLP, whose hidden channels are twice the others.
        dropout_prob: probability of dropout.
        checkpoint: parts that are computed again in the backward pass, ``"mlp"`` and ``"attention"``.
    """

    def __init__(
        self,
        mv_channels: int,
        s_channels: int | None,
        attention: SelfAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        dropout_prob: float | None = None,
        checkpoint: Sequence[str] | None = None,
    ) -> None:
        config = SelfAttentionConfig.cast(attention)
        if config.additional_qk_s_channels and not s_channels:
            raise ValueError(
                "additional_qk_s_channels: expected 0 without scalar channels, "
                f"got {config.additional_qk_s_channels}"
            )
        arguments = block_arguments(config, MLPConfig.cast(mlp))
        arguments["attention"] |= extra(config)
        super().__init__(
            GEOMETRY,
            mv_channels,
            s_channels or 0,
            dropout=dropout_prob,
            checkpoint=checkpoint or (),
            **arguments,
        )
        self.mv_channels = mv_channels

    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        reference_mv: Tensor | None = None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
        attention_mask: Any = None,
        *,
        cu_seqlens: Tensor | transformer.Sequences | None = None,
    ) -> Pair:
        """Applies the block.

        Args:
            multivectors: the items.
            scalars: their scalars.
            reference_mv: the reference of the join, which broadcasts to ``[*batch, items, 1, 16]``.
            additional_qk_features_mv: channels that queries and keys see too, ``[*batch, items, more, 16]``.
            additional_qk_features_s: scalars that they see too.
            attention_mask: see :func:`flashcliff.compat.gatr.attention_options`.
            cu_seqlens: boundaries of the sequences of a ragged batch.
        """
        mv = enter("multivectors", multivectors, self.mv_channels)
        more = additional_qk_features_mv
        out = super().forward(
            mv,
            scalars,
            None if more is None else enter("additional_qk_features_mv", more),
            additional_qk_features_s,
            component_of("reference_mv", reference_mv, mv),
            **attention_options(attention_mask, cu_seqlens, shape=mv.shape[1:-1]),
        )
        return leave(out)


def block_arguments(attention: SelfAttentionConfig, mlp: MLPConfig) -> dict[str, Any]:
    """The arguments of :class:`flashcliff.nn.transformer.Block` that the configurations say."""
    return {"attention": attention.heads(), "shared_norm": True, **activation_arguments(mlp)}
