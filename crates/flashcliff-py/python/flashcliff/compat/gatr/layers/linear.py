"""Linear layer, norm, gate and dropout, in GATr's layout.

Multivectors are ``[*batch, channels, 16]`` and scalars ``[*batch, scalars]``. The layers return views of our layout,
so nothing is copied between two of them.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ....nn import transformer
from ....nn.transformer.geometry import check_scalars
from ..._blades_last import OfBlades, OfChannels, Pair, blades_last, enter
from ..._config import activations
from ..._zero_scalars import LinearOfNone
from ..config import ACTIVATIONS, ALGEBRA, GEOMETRY

__all__ = [
    "EquiLayerNorm",
    "EquiLinear",
    "GradeDropout",
    "ScalarGatedNonlinearity",
]


class EquiLinear(OfChannels, LinearOfNone):  # type: ignore[misc]
    """The linear map of multivectors ``[*batch, in_mv_channels, 16]`` and scalars ``[*batch, in_s_channels]``.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.
        bias: whether there are biases.
        initialization: ``"default"``, ``"small"``, ``"unit_scalar"`` or ``"almost_unit_scalar"``.

    Source: GATr (arXiv 2305.18415, appendix A).
    """

    geometry_of_kind = staticmethod(lambda: GEOMETRY)


class EquiLayerNorm(transformer.EquiLayerNorm):
    """The invariant norm of multivectors over channels, and the layer norm of scalars, without parameters.

    Args:
        mv_channel_dim: the axis of the channels in ``[*batch, channels, 16]``.
        scalar_channel_dim: the axis of the scalars, ``-1``.
        epsilon: the smallest mean norm.
    """

    def __init__(
        self, mv_channel_dim: int = -2, scalar_channel_dim: int = -1, epsilon: float = 0.01
    ) -> None:
        super().__init__(GEOMETRY, eps=epsilon)
        if scalar_channel_dim != -1:
            raise ValueError(f"scalar_channel_dim: expected -1, got {scalar_channel_dim!r}")
        self.mv_channel_dim = mv_channel_dim

    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Multivectors ``[*batch, channels, 16]`` and scalars ``[*batch, scalars]``, normalised, in the same shapes."""
        mv = enter("multivectors", multivectors)
        # The blades have moved from the last axis to the first.
        axes = mv.dim()
        dim = self.mv_channel_dim + 1
        if dim == 0 or not 1 - axes <= dim < axes:
            raise ValueError(
                f"mv_channel_dim: expected an axis of {list(multivectors.shape)} but the last, "
                f"got {self.mv_channel_dim}"
            )
        if scalars is not None:
            check_scalars("scalars", scalars)
        out = transformer.equi_layer_norm(mv, self.geometry, self.eps, dim)
        return blades_last(out), None if scalars is None else F.layer_norm(
            scalars, scalars.shape[-1:]
        )


class ScalarGatedNonlinearity(OfBlades, transformer.ScalarGate):  # type: ignore[misc]
    """Multivectors ``[*batch, 16]`` times an activation of their scalar, and one of scalars.

    Args:
        nonlinearity: ``"relu"``, ``"sigmoid"`` or ``"gelu"`` (with tanh for multivectors, exact for scalars).
    """

    def __init__(self, nonlinearity: str = "relu") -> None:
        super().__init__(*activations("nonlinearity", nonlinearity, ACTIVATIONS))


class GradeDropout(OfBlades, transformer.GradeDropout):  # type: ignore[misc]
    """Dropout of whole grades of multivectors ``[*batch, 16]``, and of scalars ``[*batch, scalars]``.

    Args:
        p: the probability.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__(ALGEBRA, p)
