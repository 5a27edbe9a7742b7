"""CGENN's order of axes, ``[batch, channels, ..., blades]``, and ours."""

from __future__ import annotations

from torch import Tensor


def from_cgenn(x: Tensor) -> Tensor:
    """``[batch, channels, ..., blades]`` to ``[blades, batch, ..., channels]``, contiguous."""
    if x.dim() < 3:
        raise ValueError(f"x: expected [batch, channels, ..., blades], got {list(x.shape)}")
    return x.movedim(-1, 0).movedim(2, -1).contiguous()


def to_cgenn(x: Tensor) -> Tensor:
    """``[blades, batch, ..., channels]`` to ``[batch, channels, ..., blades]``, a view."""
    if x.dim() < 3:
        raise ValueError(f"x: expected [blades, batch, ..., channels], got {list(x.shape)}")
    return x.movedim(-1, 2).movedim(0, -1)
