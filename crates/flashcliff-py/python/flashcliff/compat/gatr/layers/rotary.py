"""Rotary positions with GATr's arguments."""

from __future__ import annotations

from torch import Tensor

from ....nn import transformer
from ....nn.transformer.geometry import check_floating

__all__ = ["ApplyRotaryPositionalEncoding"]


class ApplyRotaryPositionalEncoding(transformer.RotaryEncoding):
    """Rotates pairs of the last axis of scalars by angles that grow with the position of the item.

    Args:
        num_channels: how long the last axis is, an even number.
        item_dim: the axis of the items.
        base: the base of the frequencies.

    Source: Su et al. 2021 (arXiv 2104.09864).
    """

    def __init__(self, num_channels: int, item_dim: int, base: float = 4096) -> None:
        super().__init__(num_channels, base)
        self.num_channels = num_channels
        self.item_dim = item_dim

    def forward(self, scalars: Tensor) -> Tensor:
        """Scalars ``[..., num_channels]`` with the items at the axis ``item_dim``, turned, in the same shape."""
        check_floating("scalars", scalars)
        axes = scalars.dim()
        if not axes or scalars.shape[-1] != self.num_channels:
            raise ValueError(
                f"scalars: expected [..., {self.num_channels}], got {list(scalars.shape)}"
            )
        if not -axes <= self.item_dim < axes or self.item_dim % axes == axes - 1:
            raise ValueError(
                f"item_dim: expected an axis of {list(scalars.shape)} but the last, got {self.item_dim}"
            )
        items_first = scalars.movedim(self.item_dim, 0)
        others = items_first.shape[1:-1].numel()
        flat = items_first.reshape(items_first.shape[0], others, self.num_channels)
        return super().forward(flat).view(items_first.shape).movedim(0, self.item_dim)
