"""Linear layers of GATr and lgatr 1.4 whose scalar channels are 0 and not ``None``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nn import transformer
from ..nn.transformer.linear import NoChannels

__all__ = ["BilinearOfNone", "LinearOfNone", "add_empty", "keep_empty", "with_empty"]


def with_empty(
    layer: transformer.EquiLinear, in_scalars: int | None, out_scalars: int | None
) -> transformer.EquiLinear:
    """A layer with the parameters of GATr and lgatr 1.4 where scalar channels are 0 and not ``None``.

    It lacks its own bias for 0 input scalars, and has a parameter ``s2s.weight`` ``[out_scalars, in_scalars]`` without
    elements.
    """
    if in_scalars == 0 and layer.bias is not None:
        layer = transformer.EquiLinear(
            layer.geometry,
            layer.in_channels,
            layer.out_channels,
            layer.in_scalars,
            layer.out_scalars,
            own_bias=False,
            initialization=layer.initialization,
        )
    add_empty(layer, in_scalars, out_scalars)
    return layer


def add_empty(
    layer: transformer.EquiLinear, in_scalars: int | None, out_scalars: int | None
) -> None:
    """Adds the parameter ``s2s.weight`` without elements to a layer, if GATr and lgatr 1.4 have it."""
    if in_scalars is None or out_scalars is None or in_scalars and out_scalars:
        return
    like: Any = layer.weight
    layer.s2s = NoChannels(
        in_scalars, out_scalars, bias=False, device=like.device, dtype=like.dtype
    )


def keep_empty(
    layer: transformer.GeometricBilinear, in_scalars: int | None, out_scalars: int | None
) -> None:
    """Gives a bilinear layer the parameters of GATr and lgatr 1.4 where scalar channels are 0 and not ``None``."""
    for name in ("linear_left", "linear_right", "linear_join_left", "linear_join_right"):
        if hasattr(layer, name):
            setattr(layer, name, with_empty(getattr(layer, name), in_scalars, None))
    layer.linear_out = with_empty(layer.linear_out, in_scalars, out_scalars)


class LinearOfNone(transformer.EquiLinear):
    """The linear layer of GATr and lgatr 1.4, whose scalar channels may be ``None``."""

    geometry_of_kind: Callable[[], transformer.Geometry]
    """Returns the geometry of layers that are made now."""

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
            self.geometry_of_kind(),
            in_mv_channels,
            out_mv_channels,
            in_s_channels or 0,
            out_s_channels or 0,
            bias=bias,
            own_bias=in_s_channels is None,
            initialization=initialization,
        )
        add_empty(self, in_s_channels, out_s_channels)


class BilinearOfNone(transformer.GeometricBilinear):
    """The bilinear layer of GATr and lgatr 1.4, whose scalar channels may be ``None``."""

    geometry_of_kind: Callable[[], transformer.Geometry]
    """Returns the geometry of layers that are made now."""

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int | None = None,
        in_s_channels: int | None = None,
        out_s_channels: int | None = None,
    ) -> None:
        super().__init__(
            self.geometry_of_kind(),
            in_mv_channels,
            out_mv_channels,
            hidden_mv_channels,
            in_s_channels or 0,
            out_s_channels or 0,
        )
        keep_empty(self, in_s_channels, out_s_channels)
