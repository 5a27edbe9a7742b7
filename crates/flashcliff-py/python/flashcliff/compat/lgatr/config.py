"""L-GATr's configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..._ops import checks
from ...algebra import Algebra
from ...nn.transformer import Geometry
from .._config import Config, Heads

__all__ = [
    "ALGEBRA",
    "CrossAttentionConfig",
    "MLPConfig",
    "PrimitivesConfig",
    "SelfAttentionConfig",
]

ALGEBRA = Algebra(1, 3, 0)
"""Spacetime: ``t^2 = 1`` and ``x^2 = y^2 = z^2 = -1``."""

NONLINEARITIES = ("relu", "sigmoid", "tanh", "gelu", "silu")


@dataclass
class PrimitivesConfig(Config):
    """The group of a network, and its products.

    Args:
        subgroup: whether layers commute with the proper orthochronous Lorentz group only, which allows 10 linear maps
            in place of 5.
        bivector: whether products keep their bivectors.
        geometric_product: whether the first layer of each MLP multiplies multivectors.
        sparse_gp: no effect; products never compute zero terms here.
        sparse_linear: no effect; linear maps never multiply by zero entries here.
    """

    subgroup: bool = True
    bivector: bool = True
    geometric_product: bool = True
    sparse_gp: bool = True
    sparse_linear: bool = False

    @property
    def num_pin_linear_basis_elements(self) -> int:
        """The number of linear maps, 10 or 5."""
        return 10 if self.subgroup else 5

    @property
    def geometry(self) -> Geometry:
        """The geometry of these choices."""
        for name in ("subgroup", "bivector", "geometric_product"):
            checks.flag(name, getattr(self, name))
        return Geometry(
            ALGEBRA,
            group="spin" if self.subgroup else "pin",
            product=self.geometric_product,
            bivectors=self.bivector,
            head_norm=True,
            product_norm=True,
        )


class _Heads(Heads):
    def heads(self) -> dict[str, Any]:
        """The arguments of attention of :mod:`flashcliff.nn.transformer` that a network passes on."""
        return {**super().heads(), "bias": False}


@dataclass
class SelfAttentionConfig(_Heads):
    """The sizes of self-attention.

    Networks and blocks set the channels, ``output_init`` and ``dropout_prob``.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        in_s_channels: scalar channels of the input; may be 0.
        out_s_channels: scalar channels of the output; may be 0.
        additional_qk_mv_channels: multivector channels that the call adds to the inputs of queries and keys.
        additional_qk_s_channels: scalar channels that it adds to them.
        output_init: initialization of the last linear layer.
        dropout_prob: probability of dropout on the output.
        num_heads: heads.
        multi_query: whether all heads share keys and values.
        attn_ratio: channels of all heads together, for each channel of the input.
        head_scale: whether each head has a learned factor (arXiv 2110.09456).
    """

    in_mv_channels: int | None = None
    out_mv_channels: int | None = None
    in_s_channels: int = 0
    out_s_channels: int = 0
    additional_qk_mv_channels: int = 0
    additional_qk_s_channels: int = 0
    output_init: str = "default"
    dropout_prob: float | None = None
    num_heads: int = 8
    multi_query: bool = False
    attn_ratio: int = 1
    head_scale: bool = False


@dataclass
class CrossAttentionConfig(_Heads):
    """The sizes of cross-attention.

    Networks and blocks set the channels, ``output_init`` and ``dropout_prob``.

    Args:
        q_mv_channels: multivector channels that queries are made from.
        kv_mv_channels: multivector channels that keys and values are made from.
        out_mv_channels: multivector channels of the output.
        out_s_channels: scalar channels of the output; may be 0.
        q_s_channels: scalar channels that queries are made from; may be 0.
        kv_s_channels: scalar channels that keys and values are made from; may be 0.
        output_init, dropout_prob, num_heads, multi_query, attn_ratio, head_scale: as for
            :class:`SelfAttentionConfig`.
    """

    _queries = "q"

    q_mv_channels: int | None = None
    kv_mv_channels: int | None = None
    out_mv_channels: int | None = None
    out_s_channels: int = 0
    q_s_channels: int = 0
    kv_s_channels: int = 0
    output_init: str = "default"
    dropout_prob: float | None = None
    num_heads: int = 8
    multi_query: bool = False
    attn_ratio: int = 1
    head_scale: bool = False


@dataclass
class MLPConfig(Config):
    """The sizes of an MLP.

    Networks and blocks set the channels and ``dropout_prob``.

    Args:
        mv_channels: multivector channels of input and output.
        s_channels: scalar channels of input and output; may be 0.
        dropout_prob: probability of dropout after each layer.
        nonlinearity: ``"relu"``, ``"sigmoid"``, ``"tanh"``, ``"gelu"`` (with tanh) or ``"silu"``.
        mlp_ratio: hidden channels for each channel.
        num_layers_mlp: layers, at least 1.
    """

    mv_channels: int | None = None
    s_channels: int = 0
    dropout_prob: float | None = None
    nonlinearity: str = "gelu"
    mlp_ratio: int = 4
    num_layers_mlp: int = 2

    def arguments(self) -> dict[str, Any]:
        """The arguments of :class:`flashcliff.nn.transformer.Block` for its MLP."""
        return {
            "mlp_ratio": self.mlp_ratio,
            "mlp_layers": self.num_layers_mlp,
            "activation": activation(self.nonlinearity),
        }


def activation(nonlinearity: str) -> str:
    """The name here of one of L-GATr's nonlinearities."""
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(
            f"nonlinearity: expected one of {', '.join(NONLINEARITIES)}, got {nonlinearity!r}"
        )
    return "gelu_tanh" if nonlinearity == "gelu" else nonlinearity
