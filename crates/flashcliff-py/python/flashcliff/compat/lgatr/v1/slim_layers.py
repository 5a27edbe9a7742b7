"""The layers of L-GATr-slim of lgatr 1.4, with its names and its layout.

Vectors are ``[*batch, channels, 4]``, as ``(t, x, y, z)``, and scalars ``[*batch, scalars]``. The networks contain layers
of the same parameters that take ``[*batch, 4, channels]``.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..layers.slim import SlimDropout, SlimGLU, SlimLinear, SlimMLP, SlimRMSNorm
from ..layers.slim_attention import SlimCrossAttention, SlimSelfAttention
from ..layers.slim_blocks import ConditionalSlimBlock, SlimBlock
from ..layers.slim_version import V1, VectorsScalars

__all__ = [
    "MLP",
    "ConditionalLGATrSlimBlock",
    "CrossAttention",
    "Dropout",
    "GatedLinearUnit",
    "LGATrSlimBlock",
    "Linear",
    "RMSNorm",
    "SelfAttention",
]


class _OfLayout(nn.Module):
    """The call of a layer in the layout of lgatr 1.4."""

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> VectorsScalars:
        found: VectorsScalars = super().forward(_enter("vectors", vectors), scalars, **attn_kwargs)  # type: ignore[misc]
        return _leave(found)


class Dropout(_OfLayout, SlimDropout):  # type: ignore[misc]
    """Dropout of whole vectors, and of scalars, in training.

    Args:
        dropout_prob: the probability.
    """


class RMSNorm(_OfLayout, SlimRMSNorm):  # type: ignore[misc]
    """Vectors and scalars, divided by the root of their mean square plus epsilon.

    Args:
        epsilon: added to the mean square.
    """

    def __init__(self, epsilon: float = 0.01) -> None:
        super().__init__(0, 0, epsilon, elementwise_affine=False)


class Linear(_OfLayout, SlimLinear):  # type: ignore[misc]
    """A linear map of vectors, and one of scalars.

    Args: as for :class:`flashcliff.compat.lgatr.layers.SlimLinear`.
    """

    version = V1


class GatedLinearUnit(_OfLayout, SlimGLU):  # type: ignore[misc]
    """A gated linear unit: inner products gate vectors, and scalars gate scalars.

    Args:
        in_v_channels, out_v_channels, in_s_channels, out_s_channels: as for :class:`Linear`.
        nonlinearity: of the gates: ``"relu"``, ``"sigmoid"``, ``"tanh"``, ``"gelu"`` (the exact one) or ``"silu"``.
    """

    def __init__(
        self,
        in_v_channels: int,
        out_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        nonlinearity: str = "gelu",
    ) -> None:
        sizes = in_v_channels, out_v_channels, in_s_channels, out_s_channels
        super().__init__(*sizes, nonlinearity, None, version=V1)


class SelfAttention(_OfLayout, SlimSelfAttention):  # type: ignore[misc]
    """Multi-head self-attention of vectors ``[*batch, items, channels, 4]`` and scalars ``[*batch, items, scalars]``.

    Args: as for :class:`flashcliff.compat.lgatr.layers.SlimSelfAttention`.
    """

    version = V1


class CrossAttention(SlimCrossAttention):
    """Multi-head attention of vectors ``[*batch, items, channels, 4]`` and scalars to the vectors and scalars
    of a condition.

    Args: as for :class:`flashcliff.compat.lgatr.layers.SlimCrossAttention`.
    """

    version = V1

    def forward(  # type: ignore[override]
        self,
        vectors: Tensor,
        vectors_condition: Tensor,
        scalars: Tensor,
        scalars_condition: Tensor,
        **attn_kwargs: Any,
    ) -> VectorsScalars:
        """The vectors ``[*batch, items, channels, 4]`` and scalars ``[*batch, items, scalars]`` that attended to the
        condition, in the same shapes; for ``attn_kwargs`` see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        here, other = _enter("vectors", vectors), _enter("vectors_condition", vectors_condition)
        return _leave(super().forward(here, other, scalars, scalars_condition, **attn_kwargs))


class MLP(_OfLayout, SlimMLP):  # type: ignore[misc]
    """Gated linear units, then a linear map.

    Args:
        nonlinearity: of the gates, see :class:`GatedLinearUnit`.
        v_channels and all others: as for :class:`flashcliff.compat.lgatr.layers.SlimMLP`.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        nonlinearity: str = "gelu",
        mlp_ratio: int = 2,
        num_layers: int = 2,
        dropout_prob: float | None = None,
    ) -> None:
        options = nonlinearity, None, mlp_ratio, num_layers, dropout_prob
        super().__init__(v_channels, s_channels, *options, version=V1)


class LGATrSlimBlock(_OfLayout, SlimBlock):  # type: ignore[misc]
    """Self-attention and an MLP, each after a norm and with a residual.

    Args:
        nonlinearity: of the gates in the MLP.
        v_channels and all others: as for :class:`flashcliff.compat.lgatr.layers.SlimBlock`.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
    ) -> None:
        options = nonlinearity, None, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob
        super().__init__(v_channels, s_channels, num_heads, *options, version=V1)


class ConditionalLGATrSlimBlock(ConditionalSlimBlock):
    """Self-attention, cross-attention to a condition and an MLP, each after a norm and with a residual.

    Args:
        v_channels: vector channels.
        condition_v_channels: vector channels of the condition.
        s_channels: scalar channels.
        condition_s_channels: scalar channels of the condition.
        num_heads, nonlinearity, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob: as for :class:`LGATrSlimBlock`.
    """

    def __init__(
        self,
        v_channels: int,
        condition_v_channels: int,
        s_channels: int,
        condition_s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
    ) -> None:
        super().__init__(
            v_channels,
            condition_v_channels,
            s_channels,
            condition_s_channels,
            num_heads,
            nonlinearity,
            None,
            mlp_ratio,
            attn_ratio,
            num_layers_mlp,
            dropout_prob,
            version=V1,
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
        """The vectors ``[*batch, items, channels, 4]`` and scalars ``[*batch, items, scalars]`` after the block, in
        the same shapes; for the options see :class:`flashcliff.compat.lgatr.v1.ConditionalLGATrSlim`.
        """
        here, other = _enter("vectors", vectors), _enter("vectors_condition", vectors_condition)
        options = attn_kwargs, crossattn_kwargs
        return _leave(super().forward(here, other, scalars, scalars_condition, *options))


def _enter(name: str, vectors: Tensor) -> Tensor:
    if vectors.dim() < 2 or vectors.shape[-1] != 4:
        raise ValueError(f"{name}: expected [..., channels, 4], got {list(vectors.shape)}")
    return vectors.transpose(-1, -2)


def _leave(found: VectorsScalars) -> VectorsScalars:
    return found[0].transpose(-1, -2), found[1]
