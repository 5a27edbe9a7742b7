"""Rotary position encoding of scalar channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["RotaryEncoding"]


class RotaryEncoding(nn.Module):
    """Rotates pairs of scalar channels by angles that grow with the position of the item.

    Channel ``c`` of the first half is paired with channel ``c + channels / 2``; the angle is ``position *
    base^(-2c / channels)``. Input and output are ``[*batch, items, heads, channels]``.

    Source: Su et al. 2021 (arXiv 2104.09864), in the form of GATr.
    """

    inv_freq: Tensor

    def __init__(self, channels: int, base: float = 4096) -> None:
        super().__init__()
        if channels % 2:
            raise ValueError(f"channels: expected an even number, got {channels}")
        self.register_buffer("inv_freq", base ** (-torch.arange(0, channels, 2).float() / channels))

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[-3], device=x.device, dtype=self.inv_freq.dtype)
        angles = torch.outer(positions, self.inv_freq).unsqueeze(1).to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
