"""The layers of lgatr 1.4, with tensors ``[*batch, items, channels, 16]``.

Scalar channels may be ``None``, for no scalars. The group and the products are those of ``gatr_config`` when a layer is
made.
"""

from __future__ import annotations

from torch import Tensor

from ....nn import transformer
from ....nn.transformer.block import mlp_sizes
from ..._blades_last import Pair, enter, enter_any, leave
from ..._config import activations, known
from ..._zero_scalars import add_empty, with_empty
from .. import layers as v2
from ..precision import in_float32
from .config import ACTIVATIONS, MLPConfig, gatr_config

__all__ = [
    "EquiLayerNorm",
    "EquiLinear",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "ScalarGatedNonlinearity",
]

GradeDropout = v2.GradeDropout


class EquiLinear(transformer.EquiLinear):
    """The linear map of multivectors ``[*batch, in_mv_channels, 16]`` and scalars ``[*batch, in_s_channels]``.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.
        bias: whether there are biases.
        initialization: ``"default"``, ``"small"``, ``"unit_scalar"`` or ``"almost_unit_scalar"``.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        in_s_channels: int | None = None,
        out_s_channels: int | None = None,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        super().__init__(
            gatr_config.geometry,
            in_mv_channels,
            out_mv_channels,
            in_s_channels or 0,
            out_s_channels or 0,
            bias=bias,
            own_bias=in_s_channels is None,
            initialization=initialization,
        )
        add_empty(self, in_s_channels, out_s_channels)

    @in_float32
    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """From multivectors ``[*batch, in_mv_channels, 16]`` and scalars ``[*batch, in_s_channels]`` to
        ``out_mv_channels`` and ``out_s_channels``.
        """
        mv = enter("multivectors", multivectors, self.in_channels)
        return leave(super().forward(mv, scalars))


class EquiLayerNorm(v2.EquiLayerNorm):
    """The invariant norm of multivectors over channels, and the layer norm of scalars, without parameters.

    Args:
        mv_channel_dim: the axis of the channels in ``[*batch, channels, 16]``.
        epsilon: the smallest mean norm.
    """

    def __init__(self, mv_channel_dim: int = -2, epsilon: float = 0.01) -> None:
        super().__init__(mv_channel_dim=mv_channel_dim, epsilon=epsilon)


class ScalarGatedNonlinearity(transformer.ScalarGate):
    """Multivectors ``[*batch, 16]`` times an activation of their scalar, and one of scalars.

    Args:
        nonlinearity: ``"relu"``, ``"gelu"`` (with tanh for multivectors, exact for scalars), ``"sigmoid"`` or
            ``"silu"``.
    """

    def __init__(self, nonlinearity: str = "relu") -> None:
        super().__init__(*activations("nonlinearity", nonlinearity, ACTIVATIONS))

    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Multivectors ``[*batch, 16]`` and scalars ``[*batch, scalars]`` after the activations, in the same shapes."""
        return leave(super().forward(enter_any("multivectors", multivectors), scalars))


class GeometricBilinear(transformer.GeometricBilinear):
    """Geometric products of pairs of linear maps of multivectors ``[*batch, in_mv_channels, 16]``, a linear map and a
    norm.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        hidden_mv_channels: channels of the products; ``out_mv_channels`` by default.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int | None = None,
        in_s_channels: int | None = None,
        out_s_channels: int | None = None,
    ) -> None:
        super().__init__(
            gatr_config.geometry,
            in_mv_channels,
            out_mv_channels,
            hidden_mv_channels,
            in_s_channels or 0,
            out_s_channels or 0,
        )
        self.linear_left = with_empty(self.linear_left, in_s_channels, None)
        self.linear_right = with_empty(self.linear_right, in_s_channels, None)
        self.linear_out = with_empty(self.linear_out, in_s_channels, out_s_channels)

    @in_float32
    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:  # type: ignore[override]
        """From multivectors ``[*batch, in_mv_channels, 16]`` and scalars ``[*batch, in_s_channels]`` to
        ``out_mv_channels`` and ``out_s_channels``.
        """
        mv = enter("multivectors", multivectors, self.in_channels)
        return leave(super().forward(mv, scalars))


class GeoMLP(transformer.GeometricMLP):
    """A bilinear layer, then gates and linear layers.

    Args:
        config: the sizes; it must say ``mv_channels``.
    """

    def __init__(self, config: MLPConfig) -> None:
        config = MLPConfig.cast(config)
        channels = known("mv_channels", config.mv_channels)
        arguments = config.arguments()
        sizes = arguments.pop("mlp_ratio"), arguments.pop("mlp_layers")
        super().__init__(
            gatr_config.geometry,
            mlp_sizes(channels, *sizes),
            mlp_sizes(config.s_channels or 0, *sizes),
            dropout=config.dropout_prob,
            **arguments,
        )
        self.config = config

    @in_float32
    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:  # type: ignore[override]
        """Multivectors ``[*batch, mv_channels, 16]`` and scalars ``[*batch, s_channels]`` after the layers, in the
        same shapes.
        """
        mv = enter("multivectors", multivectors, self.config.mv_channels)
        return leave(super().forward(mv, scalars))
