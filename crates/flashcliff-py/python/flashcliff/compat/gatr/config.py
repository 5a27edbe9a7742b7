"""GATr's configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...algebra import Algebra
from ...nn.transformer import geometry_of
from .._config import Config

__all__ = ["ALGEBRA", "GEOMETRY", "MLPConfig", "SelfAttentionConfig"]

ALGEBRA = Algebra(3, 0, 1)
"""Projective geometry of space: ``e0^2 = 0`` and ``e1^2 = e2^2 = e3^2 = 1``."""

GEOMETRY = replace(geometry_of(ALGEBRA), shared_starts=False)
"""The geometry of GATr, which writes the smaller start of weights between scalars to a copy."""

ACTIVATIONS = ("relu", "sigmoid", "gelu")


@dataclass
class SelfAttentionConfig(Config):
    """The sizes of attention.

    Networks and blocks set the channels, ``output_init`` and ``dropout_prob``; :class:`GATr` sets
    the additional channels, :class:`AxialGATr` ``pos_encoding``.

    Args:
        multi_query: whether all heads share keys and values.
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.
        num_heads: heads.
        additional_qk_mv_channels: multivector channels that the call adds to the inputs of queries and keys.
        additional_qk_s_channels: scalar channels that it adds to them.
        normalizer_eps: regularises distances to points without weight.
        pos_encoding: whether scalars of queries and keys carry rotary positions.
        pos_enc_base: the base of their frequencies.
        output_init: initialization of the last linear layer.
        checkpoint: no effect, as in GATr; the networks have an argument of this name.
        increase_hidden_channels: channels of all heads together, for each channel of the input.
        dropout_prob: probability of dropout on the output; ``"none"`` and ``"null"`` stand for ``None``.
    """

    multi_query: bool = True
    in_mv_channels: int | None = None
    out_mv_channels: int | None = None
    in_s_channels: int | None = None
    out_s_channels: int | None = None
    num_heads: int = 8
    additional_qk_mv_channels: int = 0
    additional_qk_s_channels: int = 0
    normalizer_eps: float | None = 1e-3
    pos_encoding: bool = False
    pos_enc_base: int = 4096
    output_init: str = "default"
    checkpoint: bool = True
    increase_hidden_channels: int = 2
    dropout_prob: float | None = None

    def __post_init__(self) -> None:
        self.dropout_prob = _probability(self.dropout_prob)

    @property
    def hidden_mv_channels(self) -> int | None:
        """Multivector channels of a head."""
        if self.in_mv_channels is None:
            return None
        return max(self.increase_hidden_channels * self.in_mv_channels // self.num_heads, 1)

    @property
    def hidden_s_channels(self) -> int | None:
        """Scalar channels of a head, an even number of at least 8 for rotary positions."""
        if self.in_s_channels is None:
            return None
        found = max(self.increase_hidden_channels * self.in_s_channels // self.num_heads, 4)
        return max((found + 1) // 2 * 2, 8) if self.pos_encoding else found

    def heads(self) -> dict[str, Any]:
        """The arguments of :class:`flashcliff.nn.transformer.SelfAttention` that a network passes on."""
        return {
            "heads": self.num_heads,
            "ratio": self.increase_hidden_channels,
            "multi_query": self.multi_query,
            "rotary": self.pos_encoding,
            "rotary_base": self.pos_enc_base,
            "eps": self.normalizer_eps,
        }


@dataclass
class MLPConfig(Config):
    """The sizes of an MLP.

    Networks and blocks set the channels and ``dropout_prob``.

    Args:
        mv_channels: multivector channels before and after each layer. One number is an MLP without layers.
        s_channels: scalar channels, as many numbers, or ``None``.
        activation: ``"relu"``, ``"sigmoid"`` or ``"gelu"`` (with tanh for multivectors, exact for scalars).
        dropout_prob: probability of dropout after each layer; ``"none"`` and ``"null"`` stand for ``None``.
    """

    mv_channels: Sequence[int] | None = None
    s_channels: Sequence[int | None] | None = None
    activation: str = "gelu"
    dropout_prob: float | None = None

    def __post_init__(self) -> None:
        self.dropout_prob = _probability(self.dropout_prob)


def _probability(given: Any) -> Any:
    return None if isinstance(given, str) and given.lower() in ("none", "null") else given
