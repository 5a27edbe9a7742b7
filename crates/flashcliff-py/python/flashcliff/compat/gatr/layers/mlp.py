"""The bilinear layer and the MLP, in GATr's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....nn import transformer
from ..._blades_last import Pair, enter, leave
from ..._config import activations, known
from ..._zero_scalars import BilinearOfNone, keep_empty, with_empty
from ..config import ACTIVATIONS, GEOMETRY, MLPConfig
from ..reference import component_of

__all__ = ["GeoMLP", "GeometricBilinear"]


class GeometricBilinear(BilinearOfNone):
    """Geometric products and joins of pairs of linear maps of multivectors ``[*batch, in_mv_channels, 16]``, then a
    linear map.

    Without scalars the second map of each product starts as the others do; GATr has no such layer.

    Args:
        in_mv_channels: multivector channels of the input.
        out_mv_channels: multivector channels of the output.
        hidden_mv_channels: channels of products and joins together, an even number; ``out_mv_channels`` by default.
        in_s_channels: scalar channels of the input, or ``None``.
        out_s_channels: scalar channels of the output, or ``None``.

    Source: GATr (arXiv 2305.18415, section 3).
    """

    geometry_of_kind = staticmethod(lambda: GEOMETRY)

    def forward(  # type: ignore[override]
        self, multivectors: Tensor, reference_mv: Tensor, scalars: Tensor | None = None
    ) -> Pair:
        """Applies the layer.

        Args:
            multivectors: the input.
            reference_mv: the reference of the join, which broadcasts to ``[*batch, 1, 16]``.
            scalars: scalars of the input.
        """
        mv = enter("multivectors", multivectors, self.in_channels)
        reference = component_of("reference_mv", reference_mv, mv)
        return leave(super().forward(mv, scalars, reference))


class GeoMLP(transformer.GeometricMLP):
    """A bilinear layer, then gates and linear layers.

    Args:
        config: the sizes; it must say ``mv_channels``.
    """

    def __init__(self, config: MLPConfig | Mapping[str, Any]) -> None:
        config = MLPConfig.cast(config)
        channels = tuple(known("mv_channels", config.mv_channels))
        scalars = tuple(config.s_channels or (None,) * len(channels))
        super().__init__(
            GEOMETRY,
            channels,
            tuple(size or 0 for size in scalars),
            dropout=config.dropout_prob,
            **activation_arguments(config),
        )
        at = 0
        for index, layer in enumerate(self.layers):
            if isinstance(layer, transformer.GeometricBilinear | transformer.EquiLinear):
                before, after = scalars[at], scalars[at + 1]
                at += 1
                if isinstance(layer, transformer.GeometricBilinear):
                    keep_empty(layer, before, after)
                else:
                    self.layers[index] = with_empty(layer, before, after)
        self.config = config
        self.in_mv_channels = channels[0]

    def forward(  # type: ignore[override]
        self, multivectors: Tensor, scalars: Tensor | None, reference_mv: Tensor
    ) -> Pair:
        """The multivectors ``[*batch, mv_channels, 16]`` and scalars ``[*batch, s_channels]`` after the layers;
        ``reference_mv`` is that of :class:`GeometricBilinear`.
        """
        mv = enter("multivectors", multivectors, self.in_mv_channels)
        return leave(super().forward(mv, scalars, component_of("reference_mv", reference_mv, mv)))


def activation_arguments(config: MLPConfig) -> dict[str, str]:
    """The arguments ``activation`` and ``scalar_activation`` of :mod:`flashcliff.nn.transformer`."""
    of_multivectors, of_scalars = activations("activation", config.activation, ACTIVATIONS)
    return {"activation": of_multivectors, "scalar_activation": of_scalars}
