"""The layers of lgatr 1.4, with tensors ``[*batch, items, channels, 16]``.

Scalar channels may be ``None``, for no scalars. A layer takes the group and the products from ``gatr_config`` when it is
made.
"""

from __future__ import annotations

from ....nn import transformer
from ....nn.transformer.block import mlp_sizes
from ..._blades_last import OfBlades
from ..._config import activations, known
from ..._zero_scalars import BilinearOfNone, LinearOfNone
from .. import layers as v2
from ..layers.linear import InFloat32
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


def _geometry() -> transformer.Geometry:
    return gatr_config.geometry


class EquiLinear(InFloat32, LinearOfNone):  # type: ignore[misc]
    """The linear map of multivectors ``[*batch, in_mv_channels, 16]`` and scalars ``[*batch, in_s_channels]``.

    Args:
        in_s_channels, out_s_channels: scalar channels of input and output, or ``None``.
        in_mv_channels and all others: as for :class:`flashcliff.compat.lgatr.EquiLinear`.
    """

    geometry_of_kind = staticmethod(_geometry)


class EquiLayerNorm(v2.EquiLayerNorm):
    """The invariant norm of multivectors over channels, and the layer norm of scalars, without parameters.

    Args:
        mv_channel_dim: the axis of the channels in ``[*batch, channels, 16]``.
        epsilon: the smallest mean norm.
    """

    def __init__(self, mv_channel_dim: int = -2, epsilon: float = 0.01) -> None:
        super().__init__(mv_channel_dim=mv_channel_dim, epsilon=epsilon)


class ScalarGatedNonlinearity(OfBlades, transformer.ScalarGate):  # type: ignore[misc]
    """Multivectors ``[*batch, 16]`` times an activation of their scalar, and one of scalars.

    Args:
        nonlinearity: ``"relu"``, ``"gelu"`` (with tanh for multivectors, exact for scalars), ``"sigmoid"`` or
            ``"silu"``.
    """

    def __init__(self, nonlinearity: str = "relu") -> None:
        super().__init__(*activations("nonlinearity", nonlinearity, ACTIVATIONS))


class GeometricBilinear(InFloat32, BilinearOfNone):  # type: ignore[misc]
    """Geometric products of pairs of linear maps of multivectors ``[*batch, in_mv_channels, 16]``, a linear map and a
    norm.

    Args:
        in_s_channels, out_s_channels: scalar channels of input and output, or ``None``.
        in_mv_channels and all others: as for :class:`flashcliff.compat.lgatr.GeometricBilinear`.
    """

    geometry_of_kind = staticmethod(_geometry)


class GeoMLP(InFloat32, transformer.GeometricMLP):  # type: ignore[misc]
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
        self.in_channels = channels
