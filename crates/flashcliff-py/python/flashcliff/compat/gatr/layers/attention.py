"""Self-attention and cross-attention in GATr's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import extra, known, output
from ..._zero_scalars import with_empty
from ..config import GEOMETRY, SelfAttentionConfig
from ..masks import attention_options

__all__ = ["CrossAttention", "SelfAttention"]


class SelfAttention(transformer.SelfAttention):
    """Multi-head self-attention of multivectors ``[*batch, items, channels, 16]`` and scalars ``[*batch, items,
    scalars]``, by inner products and distances of points.

    Args:
        config: the sizes; it must say ``in_mv_channels`` and ``out_mv_channels``.

    Source: GATr (arXiv 2305.18415, section 3).
    """

    def __init__(self, config: SelfAttentionConfig | Mapping[str, Any]) -> None:
        config = SelfAttentionConfig.cast(config)
        _check_scalars(config)
        scalars = config.additional_qk_s_channels
        if scalars and config.in_s_channels is None:
            raise ValueError(
                f"additional_qk_s_channels: expected 0 without in_s_channels, got {scalars}"
            )
        super().__init__(
            GEOMETRY,
            known("in_mv_channels", config.in_mv_channels),
            config.in_s_channels or 0,
            **config.heads(),
            **extra(config),
            **output(config),
        )
        _keep_empty(self, config)
        self.config = config

    def forward(  # type: ignore[override]
        self,
        multivectors: Tensor,
        additional_qk_features_mv: Tensor | None = None,
        scalars: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
        attention_mask: Any = None,
        *,
        cu_seqlens: Tensor | transformer.Sequences | None = None,
    ) -> Pair:
        """Attends.

        Args:
            multivectors: the items.
            additional_qk_features_mv: channels that queries and keys see too, ``[*batch, items, more, 16]``.
            scalars: scalars of the items.
            additional_qk_features_s: scalars that queries and keys see too.
            attention_mask: see :func:`flashcliff.compat.gatr.attention_options`.
            cu_seqlens: boundaries of the sequences of a ragged batch.
        """
        mv = enter("multivectors", multivectors, self.config.in_mv_channels)
        more = additional_qk_features_mv
        options = attention_options(attention_mask, cu_seqlens, shape=mv.shape[1:-1])
        out = super().forward(
            mv,
            scalars,
            None if more is None else enter("additional_qk_features_mv", more),
            additional_qk_features_s,
            **options,
        )
        return leave(out)


class CrossAttention(transformer.CrossAttention):
    """Multi-head attention of multivectors ``[*batch, items, in_q_mv_channels, 16]`` to the multivectors of another
    set. Its heads share keys and values.

    Args:
        config: the sizes; the channels of its input are the channels of keys and values.
        in_q_mv_channels: multivector channels that queries are made from.
        in_q_s_channels: scalar channels that they are made from, or ``None``.
    """

    def __init__(
        self,
        config: SelfAttentionConfig | Mapping[str, Any],
        in_q_mv_channels: int,
        in_q_s_channels: int | None = None,
    ) -> None:
        config = SelfAttentionConfig.cast(config)
        _check_scalars(config)
        for name, only in (
            ("multi_query", True),
            ("pos_encoding", False),
            ("additional_qk_mv_channels", 0),
            ("additional_qk_s_channels", 0),
        ):
            if (given := getattr(config, name)) != only:
                raise ValueError(f"{name}: expected {only} in cross-attention, got {given!r}")
        heads = config.heads()
        super().__init__(
            GEOMETRY,
            in_q_mv_channels,
            in_q_s_channels or 0,
            known("in_mv_channels", config.in_mv_channels),
            config.in_s_channels or 0,
            joint=False,
            **{name: heads[name] for name in ("heads", "ratio", "multi_query", "eps")},
            **output(config),
        )
        _keep_empty(self, config)
        self.in_q_mv_channels = in_q_mv_channels
        self.q_linear = with_empty(self.q_linear, in_q_s_channels, self.q_linear.out_scalars)
        self.config = config

    def forward(  # type: ignore[override]
        self,
        multivectors_kv: Tensor,
        multivectors_q: Tensor,
        scalars_kv: Tensor | None = None,
        scalars_q: Tensor | None = None,
        attention_mask: Any = None,
        *,
        cu_seqlens: Tensor | transformer.Sequences | None = None,
        cu_seqlens_key: Tensor | transformer.Sequences | None = None,
    ) -> Pair:
        """Attends.

        Args:
            multivectors_kv: the items of keys and values, ``[*batch, others, in_mv_channels, 16]``.
            multivectors_q: the items of the queries, ``[*batch, items, in_q_mv_channels, 16]``.
            scalars_kv: scalars of the former.
            scalars_q: scalars of the latter.
            attention_mask: see :func:`flashcliff.compat.gatr.attention_options`.
            cu_seqlens: boundaries of the queries' sequences of a ragged batch.
            cu_seqlens_key: boundaries of the keys' sequences; the same by default.
        """
        query = enter("multivectors_q", multivectors_q, self.in_q_mv_channels)
        key = enter("multivectors_kv", multivectors_kv, self.config.in_mv_channels)
        options = attention_options(
            attention_mask, cu_seqlens, cu_seqlens_key, shape=query.shape[1:-1], keys=key.shape[-2]
        )
        return leave(super().forward(query, key, scalars_q, scalars_kv, **options))


def _check_scalars(config: SelfAttentionConfig) -> None:
    if config.in_s_channels == 0:
        raise ValueError("in_s_channels: expected None or at least 1, got 0")


def _keep_empty(
    attention: transformer.SelfAttention | transformer.CrossAttention, config: SelfAttentionConfig
) -> None:
    """Gives attention GATr's state dict where the scalar channels of the output are 0 and not ``None``."""
    inner = attention.out_linear.in_scalars or None
    attention.out_linear = with_empty(attention.out_linear, inner, config.out_s_channels)
