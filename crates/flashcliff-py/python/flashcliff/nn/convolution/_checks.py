"""Checks of sizes, options and inputs of layers on grids."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..._ops import checks
from ...rotors._checks import check_kind
from ._autocast import is_on

PADDING_MODES = ("zeros", "circular", "reflect", "replicate")
"""The padding modes, with PyTorch's names."""


def per_axis(name: str, value: Any, axes: int, least: int) -> tuple[int, ...]:
    """A number for each axis of space, from one number or one for each axis."""
    if isinstance(value, (tuple, list)):
        if len(value) != axes:
            raise ValueError(f"{name}: expected one integer or {axes}, got {value!r}")
        found = tuple(checks.integer(name, part) for part in value)
    else:
        found = (checks.integer(name, value),) * axes
    if min(found) < least:
        raise ValueError(f"{name}: expected at least {least}, got {value!r}")
    return found


def padding_of(
    value: Any,
    axes: int,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[tuple[int, int], ...]:
    """How much is added before and after each axis, of a number, of one for each axis, or of ``"same"`` or ``"valid"``."""
    if value == "valid":
        return ((0, 0),) * axes
    if value == "same":
        if max(stride) > 1:
            raise ValueError(
                f'padding: expected a stride of 1 for "same", got {stride}; give numbers'
            )
        totals = [step * (size - 1) for size, step in zip(kernel, dilation)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(value, str):
        raise ValueError(f'padding: expected integers, "same" or "valid", got {value!r}')
    return tuple((size, size) for size in per_axis("padding", value, axes, 0))


def divided(name: str, count: int, groups: int) -> None:
    """Checks that channels can be split into groups."""
    if count % groups:
        raise ValueError(f"{name}: expected a multiple of groups = {groups}, got {count}")


def check_field(layer: str, x: Any, axes: int, channels: int, blades: int) -> None:
    """Checks that something is a tensor ``[batch, channels, *space, blades]``."""
    check_kind(layer, "x", x)
    if x.dim() != axes + 3 or x.shape[1] != channels or x.shape[-1] != blades:
        space = ", ".join(("depth", "height", "width")[-axes:])
        raise ValueError(
            f"{layer}: `x` must be [batch, {channels}, {space}, {blades}], the channels second and the blades last, got {list(x.shape)}"
        )


def check_type(layer: str, x: Tensor, weight: Tensor) -> None:
    """Checks that an input is of the type and on the device of a weight."""
    if x.device != weight.device:
        raise RuntimeError(
            f"{layer}: expected all tensors on the same device, got x on {x.device}, the weight on {weight.device}; move them with "
            "`.to(device)`"
        )
    if x.dtype != weight.dtype and not is_on(x.device.type):
        raise TypeError(
            f"{layer}: `x` must be {weight.dtype} as the weight is, got {x.dtype}; call `x.to({weight.dtype})` or the layer's "
            f"`to({x.dtype})`"
        )
