"""Linear layer, norm, gate, dropout, bilinear layer and MLP, in L-GATr's layout.

Multivectors are ``[*batch, channels, 16]`` and scalars ``[*batch, scalars]``. The layers return views of our layout,
so nothing is copied between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....nn import transformer
from ....nn.transformer.block import mlp_sizes
from ..._blades_last import OfBlades, OfChannels, Pair, blades_last, enter
from ..._config import known
from ..config import ALGEBRA, MLPConfig, PrimitivesConfig, activation
from ..precision import in_float32

__all__ = [
    "EquiLayerNorm",
    "EquiLinear",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "Primitives",
    "ScalarGatedNonlinearity",
]

Primitives = PrimitivesConfig | Mapping[str, Any]


class InFloat32(OfChannels):
    """The call of a layer in L-GATr's layout, which under autocast is in float32."""

    forward = in_float32(OfChannels.forward)


class EquiLinear(InFloat32, transformer.EquiLinear):  # type: ignore[misc]
    """The linear map of multivectors ``[*batch, in_mv_channels, 16]`` and scalars ``[*batch, in_s_channels]``.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        primitives: the group; 10 maps for the connected one, 5 for the full one.
        in_s_channels: scalar channels of the input; may be 0.
        out_s_channels: scalar channels of the output; may be 0.
        bias: whether there are biases.
        initialization: ``"default"``, ``"small"``, ``"unit_scalar"`` or ``"almost_unit_scalar"``.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        primitives: Primitives,
        in_s_channels: int = 0,
        out_s_channels: int = 0,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        self_primitives = PrimitivesConfig.cast(primitives)
        super().__init__(
            self_primitives.geometry,
            in_mv_channels,
            out_mv_channels,
            in_s_channels,
            out_s_channels,
            bias=bias,
            initialization=initialization,
        )
        self.primitives = self_primitives


class EquiLayerNorm(transformer.EquiLayerNorm):
    """The invariant norm of multivectors over channels, and the layer norm of scalars.

    Args:
        mv_channels: multivector channels; only for ``elementwise_affine``.
        s_channels: scalar channels; only for ``elementwise_affine``.
        mv_channel_dim: the axis of the channels in ``[*batch, channels, 16]``.
        epsilon: the smallest mean norm.
        gain: a factor of normalised multivectors.
        elementwise_affine: whether each channel and grade has a gain ``weight_mv``, and each scalar one ``weight_s``.
    """

    def __init__(
        self,
        mv_channels: int = 0,
        s_channels: int = 0,
        mv_channel_dim: int = -2,
        epsilon: float = 0.01,
        gain: float = 1.0,
        elementwise_affine: bool = False,
    ) -> None:
        super().__init__(
            PrimitivesConfig().geometry,
            mv_channels,
            s_channels,
            affine=elementwise_affine,
            eps=epsilon,
        )
        if elementwise_affine and mv_channel_dim != -2:
            raise ValueError(
                f"mv_channel_dim: expected -2 with elementwise_affine, got {mv_channel_dim}"
            )
        self.mv_channel_dim = mv_channel_dim
        self.gain = gain

    @in_float32
    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Multivectors ``[*batch, channels, 16]`` and scalars ``[*batch, scalars]``, normalised, in the same shapes."""
        mv = enter("multivectors", multivectors)
        if self.mv_channel_dim in (-2, mv.dim() - 2):
            out, out_s = super().forward(mv, scalars)
        else:
            out = transformer.equi_layer_norm(mv, self.geometry, self.eps, self._dim(mv.dim()))
            out_s = None
            if scalars is not None:
                out_s = torch.nn.functional.layer_norm(scalars, scalars.shape[-1:])
        return blades_last(out if self.gain == 1 else out * self.gain), out_s

    def _dim(self, axes: int) -> int:
        """The axis of the channels in ``[16, *batch, channels]``, where all other axes have moved by one."""
        found = self.mv_channel_dim % axes
        if found == axes - 1:
            raise ValueError(
                "mv_channel_dim: expected an axis other than that of the blades, "
                f"got {self.mv_channel_dim}"
            )
        return found + 1


class ScalarGatedNonlinearity(OfBlades, transformer.ScalarGate):  # type: ignore[misc]
    """Multivectors ``[*batch, 16]`` times an activation of their scalar, and the same activation of scalars.

    Args:
        nonlinearity: ``"relu"``, ``"sigmoid"``, ``"tanh"``, ``"gelu"`` (with tanh) or ``"silu"``.
    """

    def __init__(self, nonlinearity: str = "gelu") -> None:
        super().__init__(activation(nonlinearity))


class GradeDropout(OfBlades, transformer.GradeDropout):  # type: ignore[misc]
    """Dropout of whole grades of multivectors ``[*batch, 16]``, and of scalars ``[*batch, scalars]``.

    Args:
        p: the probability.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(ALGEBRA, p)


class GeometricBilinear(InFloat32, transformer.GeometricBilinear):  # type: ignore[misc]
    """Geometric products of pairs of linear maps of multivectors ``[*batch, in_mv_channels, 16]``, a linear map and a
    norm.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        primitives: the group.
        hidden_mv_channels: channels of the products; ``out_mv_channels`` by default.
        in_s_channels: scalar channels of the input. 0 is allowed here, but not in lgatr 2.0.
        out_s_channels: scalar channels of the output; may be 0.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        primitives: Primitives,
        hidden_mv_channels: int | None = None,
        in_s_channels: int = 0,
        out_s_channels: int = 0,
    ) -> None:
        self_primitives = PrimitivesConfig.cast(primitives)
        super().__init__(
            self_primitives.geometry,
            in_mv_channels,
            out_mv_channels,
            hidden_mv_channels,
            in_s_channels,
            out_s_channels,
        )
        self.primitives = self_primitives


class GeoMLP(InFloat32, transformer.GeometricMLP):  # type: ignore[misc]
    """A bilinear layer, then gates and linear layers.

    Args:
        config: the sizes; it must say ``mv_channels``.
        primitives: the group, and whether the first layer multiplies.
    """

    def __init__(self, config: MLPConfig | Mapping[str, Any], primitives: Primitives) -> None:
        config = MLPConfig.cast(config)
        channels = known("mv_channels", config.mv_channels)
        if config.num_layers_mlp < 1:
            raise ValueError(f"num_layers_mlp: expected at least 1, got {config.num_layers_mlp}")
        sizes = config.mlp_ratio, config.num_layers_mlp
        super().__init__(
            PrimitivesConfig.cast(primitives).geometry,
            mlp_sizes(channels, *sizes),
            mlp_sizes(config.s_channels, *sizes),
            activation=activation(config.nonlinearity),
            dropout=config.dropout_prob,
        )
        self.in_channels = channels
