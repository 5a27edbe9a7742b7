"""Multivectors ``[batch, channels, *space, blades]`` as the channels of a real convolution, and back.

Real channels are ordered by group, then by blade, then by channel. A result is a view of what the convolution wrote, and the next
layer reads it without a copy unless something between them has moved its memory. There are copies with several groups.
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_channels(x: Tensor, groups: int = 1) -> Tensor:
    """``[batch, channels, *space, blades]`` as ``[batch, groups * blades * channels / groups, *space]``."""
    batch, channels, *space, blades = x.shape
    x = x.movedim(-1, 1)
    if groups > 1:
        x = x.unflatten(2, (groups, channels // groups)).transpose(1, 2)
    return x.reshape(batch, blades * channels, *space)


def to_blades(x: Tensor, blades: int, groups: int = 1) -> Tensor:
    """The inverse of :func:`to_channels`."""
    x = x.unflatten(1, (groups, blades, x.shape[1] // (groups * blades)))
    return x.movedim(2, -1).flatten(1, 2)


def bias_of_channels(bias: Tensor, groups: int = 1) -> Tensor:
    """``[blades, channels]`` as ``[groups * blades * channels / groups]``."""
    if groups == 1:
        return bias.reshape(-1)
    return bias.unflatten(1, (groups, bias.shape[1] // groups)).transpose(0, 1).reshape(-1)


def memory_format_of(x: Tensor) -> torch.memory_format:
    """Whether channels lie side by side in memory. cuDNN then takes a kernel of the same format, which need not be copied."""
    for dim, found in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.dim() == dim and not x.is_contiguous() and x.is_contiguous(memory_format=found):
            return found
    return torch.contiguous_format
