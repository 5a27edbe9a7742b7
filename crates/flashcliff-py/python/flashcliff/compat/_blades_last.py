"""The layout of GATr and L-GATr, ``[*batch, items, channels, blades]``, and ours, ``[blades, *batch, items,
channels]``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .._ops import doors
from ..nn.transformer.geometry import check_floating

__all__ = [
    "OfBlades",
    "OfChannels",
    "Pair",
    "blades_first",
    "blades_last",
    "enter",
    "enter_any",
    "leave",
]

Pair = tuple[Tensor, Tensor | None]
"""Multivectors and scalars."""


def blades_first(name: str, x: Any, blades: int, channels: int | None = None) -> Tensor:
    """``[*batch, channels, blades]`` to ``[blades, *batch, channels]``, a view.

    Args:
        name: the argument that an error names.
        x: the tensor.
        blades: how many blades it must have.
        channels: how many channels it must have; any number by default.
    """
    check_floating(name, x)
    # Views of a storage that was resized are an error of PyTorch.
    doors.check_open(name, (x,), (name,))
    fits = x.dim() >= 2 and x.shape[-1] == blades and channels in (None, x.shape[-2])
    if not fits:
        wanted = "channels" if channels is None else channels
        raise ValueError(f"{name}: expected [..., {wanted}, {blades}], got {list(x.shape)}")
    return x.movedim(-1, 0)


def blades_last(x: Tensor) -> Tensor:
    """``[blades, *batch, channels]`` to ``[*batch, channels, blades]``, a view."""
    return x.movedim(0, -1)


def enter(name: str, multivectors: Any, channels: int | None = None) -> Tensor:
    """``[*batch, channels, 16]`` to ``[16, *batch, channels]``, a view."""
    return blades_first(name, multivectors, 16, channels)


def enter_any(name: str, multivectors: Any) -> Tensor:
    """``[*batch, 16]`` to ``[16, *batch]``, a view. There need be no channels."""
    check_floating(name, multivectors)
    doors.check_open(name, (multivectors,), (name,))
    if multivectors.dim() < 1 or multivectors.shape[-1] != 16:
        raise ValueError(f"{name}: expected [..., 16], got {list(multivectors.shape)}")
    moved: Tensor = multivectors.movedim(-1, 0)
    return moved


def leave(pair: Pair) -> Pair:
    """Multivectors and scalars in the layout of GATr and L-GATr."""
    return blades_last(pair[0]), pair[1]


class OfChannels(nn.Module):
    """The call of a layer of ``in_channels`` in the layout of GATr and L-GATr."""

    in_channels: int | None

    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """The layer's multivectors ``[*batch, channels, 16]`` and scalars ``[*batch, scalars]`` of multivectors
        ``[*batch, in_channels, 16]`` and scalars.
        """
        mv = enter("multivectors", multivectors, self.in_channels)
        return leave(super().forward(mv, scalars))


class OfBlades(nn.Module):
    """The call of a layer of each multivector in the layout of GATr and L-GATr."""

    def forward(self, multivectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Multivectors ``[*batch, 16]`` and scalars ``[*batch, scalars]`` after the layer, in the same shapes."""
        return leave(super().forward(enter_any("multivectors", multivectors), scalars))
