"""State dicts of linear layers of GATr and lgatr 1.4 whose scalar channels are 0 and not ``None``."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..nn import transformer

__all__ = ["add_empty", "with_empty"]


def with_empty(
    layer: transformer.EquiLinear, in_scalars: int | None, out_scalars: int | None
) -> transformer.EquiLinear:
    """A layer with the parameters of GATr and lgatr 1.4 where scalar channels are 0 and not ``None``.

    It has no bias of its own for 0 input scalars, and its state dict has an entry ``s2s.weight`` ``[out_scalars,
    in_scalars]`` without elements.
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
    """Adds the entry ``s2s.weight`` without elements to the state dict of a layer, if GATr and lgatr 1.4 have it."""
    if in_scalars is None or out_scalars is None or in_scalars and out_scalars:
        return
    layer.register_state_dict_post_hook(_write)
    layer.register_load_state_dict_pre_hook(_read)


def _write(layer: nn.Module, values: dict[str, Any], prefix: str, *_: object) -> None:
    weight: Any = layer.weight
    shape = layer.out_scalars, layer.in_scalars
    values[f"{prefix}s2s.weight"] = weight.detach().new_empty(shape)


def _read(layer: nn.Module, values: dict[str, Any], prefix: str, *_: object) -> None:
    name = f"{prefix}s2s.weight"
    expected = [layer.out_scalars, layer.in_scalars]
    if name in values and list(values[name].shape) != expected:
        raise RuntimeError(f"{name}: expected {expected}, got {list(values[name].shape)}")
    values.pop(name, None)
