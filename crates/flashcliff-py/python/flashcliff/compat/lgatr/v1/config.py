"""The configurations of lgatr 1.4, and its global one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ....nn.transformer import Geometry
from ..._config import Config, Heads, activations
from ..config import PrimitivesConfig

__all__ = [
    "CrossAttentionConfig",
    "LGATrConfig",
    "MLPConfig",
    "SelfAttentionConfig",
    "gatr_config",
]

ACTIVATIONS = ("relu", "gelu", "sigmoid", "silu")


@dataclass
class LGATrConfig:
    """The group of all networks, and their products.

    Args:
        use_fully_connected_subgroup: whether layers commute with the proper orthochronous Lorentz group only, which
            allows 10 linear maps in place of 5.
        use_bivector: whether products keep their bivectors.
        use_geometric_product: whether the first layer of each MLP multiplies multivectors.
    """

    use_fully_connected_subgroup: bool = True
    use_bivector: bool = True
    use_geometric_product: bool = True

    @property
    def num_pin_linear_basis_elements(self) -> int:
        """The number of linear maps, 10 or 5."""
        return 10 if self.use_fully_connected_subgroup else 5

    @property
    def geometry(self) -> Geometry:
        """The geometry of these choices. lgatr 1.4 writes the smaller start of weights between scalars to a copy."""
        chosen = PrimitivesConfig(
            self.use_fully_connected_subgroup, self.use_bivector, self.use_geometric_product
        )
        return replace(chosen.geometry, shared_starts=False)


gatr_config = LGATrConfig()
"""The choices of layers and networks that are made from now on.

They are read when a layer is made. Existing layers keep their choices, while lgatr 1.4 reads some of them at each call.
"""


class _Heads(Heads):
    _ratio = "increase_hidden_channels"
    _of_none = True


@dataclass
class SelfAttentionConfig(_Heads):
    """The sizes of self-attention.

    Networks and blocks set the channels, ``output_init`` and ``dropout_prob``.

    Args:
        in_s_channels, out_s_channels: scalar channels of input and output, or ``None``.
        increase_hidden_channels: channels of all heads together, for each channel of the input.
        in_mv_channels and all others: as for :class:`flashcliff.compat.lgatr.SelfAttentionConfig`.
    """

    in_mv_channels: int | None = None
    out_mv_channels: int | None = None
    in_s_channels: int | None = None
    out_s_channels: int | None = None
    additional_qk_mv_channels: int = 0
    additional_qk_s_channels: int = 0
    output_init: str = "default"
    dropout_prob: float | None = None
    num_heads: int = 8
    multi_query: bool = False
    increase_hidden_channels: int = 1
    head_scale: bool = False


@dataclass
class CrossAttentionConfig(_Heads):
    """The sizes of cross-attention.

    Networks and blocks set the channels, ``output_init`` and ``dropout_prob``.

    Args:
        in_q_mv_channels: multivector channels that queries are made from.
        in_kv_mv_channels: multivector channels that keys and values are made from.
        out_mv_channels: multivector channels of the output.
        out_s_channels: scalar channels of the output, or ``None``.
        in_q_s_channels: scalar channels that queries are made from, or ``None``.
        in_kv_s_channels: scalar channels that keys and values are made from, or ``None``.
        additional_q_mv_channels, additional_q_s_channels, additional_k_mv_channels, additional_k_s_channels: 0; no
            version has them.
        output_init, dropout_prob, num_heads, multi_query, increase_hidden_channels, head_scale: as for
            :class:`SelfAttentionConfig`.
    """

    _queries = "in_q"

    in_q_mv_channels: int | None = None
    in_kv_mv_channels: int | None = None
    out_mv_channels: int | None = None
    out_s_channels: int | None = None
    in_q_s_channels: int | None = None
    in_kv_s_channels: int | None = None
    additional_q_mv_channels: int = 0
    additional_q_s_channels: int = 0
    additional_k_mv_channels: int = 0
    additional_k_s_channels: int = 0
    output_init: str = "default"
    dropout_prob: float | None = None
    num_heads: int = 8
    multi_query: bool = False
    increase_hidden_channels: int = 1
    head_scale: bool = False

    def heads(self) -> dict[str, Any]:
        """The arguments of :class:`flashcliff.nn.transformer.CrossAttention` that a network passes on."""
        for name in ("q_mv", "q_s", "k_mv", "k_s"):
            if count := getattr(self, f"additional_{name}_channels"):
                raise ValueError(f"additional_{name}_channels: expected 0, got {count}")
        # Queries, keys and values are not normalised here.
        return {**super().heads(), "head_norm": False}


@dataclass
class MLPConfig(Config):
    """The sizes of an MLP.

    Networks and blocks set the channels and ``dropout_prob``.

    Args:
        mv_channels: multivector channels of input and output.
        s_channels: scalar channels of input and output, or ``None``.
        dropout_prob: probability of dropout after each layer.
        activation: ``"relu"``, ``"gelu"`` (with tanh for multivectors, exact for scalars), ``"sigmoid"`` or
            ``"silu"``.
        increase_hidden_channels: hidden channels for each channel.
        num_hidden_layers: hidden layers, at least 0.
    """

    mv_channels: int | None = None
    s_channels: int | None = None
    dropout_prob: float | None = None
    activation: str = "gelu"
    increase_hidden_channels: int = 4
    num_hidden_layers: int = 1

    def arguments(self) -> dict[str, Any]:
        """The arguments of :class:`flashcliff.nn.transformer.Block` for its MLP."""
        if self.num_hidden_layers < 0:
            raise ValueError(
                f"num_hidden_layers: expected at least 0, got {self.num_hidden_layers}"
            )
        of_multivectors, of_scalars = activations("activation", self.activation, ACTIVATIONS)
        return {
            "mlp_ratio": self.increase_hidden_channels,
            "mlp_layers": self.num_hidden_layers + 1,
            "activation": of_multivectors,
            "scalar_activation": of_scalars,
        }
