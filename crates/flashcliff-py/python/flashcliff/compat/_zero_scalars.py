"""Linear layers of GATr and lgatr 1.4 whose scalar channels are 0 and not ``None``."""

from __future__ import annotations

from typing import Any

from ..nn import transformer
from ..nn.transformer.linear import NoChannels

__all__ = ["add_empty", "with_empty"]


def with_empty(
    layer: transformer.EquiLinear, in_scalars: int | None, out_scalars: int | None
) -> transformer.EquiLinear:
    """A layer with the parameters of GATr and lgatr 1.4 where scalar channels are 0 and not ``None``.

    It has no bias of its own for 0 input scalars, and a parameter ``s2s.weight`` ``[out_scalars, in_scalars]`` without
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
