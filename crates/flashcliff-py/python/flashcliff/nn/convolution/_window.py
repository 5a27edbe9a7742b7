"""The window of a convolution, with the options that PyTorch's convolutions have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._module import check_features
from ._checks import divided, padding_of, per_axis

CONVOLUTIONS = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}
"""PyTorch's convolution on a grid with so many axes."""


class Window:
    """Channels, window, stride, padding, dilation and groups of a layer."""

    padding: Any

    def _set_window(
        self,
        axes: int,
        channels: tuple[int, int],
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...],
        padding: int | tuple[int, ...] | str,
        dilation: int | tuple[int, ...],
        groups: int,
    ) -> None:
        """Checks and keeps the options of a grid with so many axes. ``channels``: of the input and of the output."""
        self.in_channels = check_features("in_channels", channels[0])
        self.out_channels = check_features("out_channels", channels[1])
        self.kernel_size = per_axis("kernel_size", kernel_size, axes, 1)
        self.stride = per_axis("stride", stride, axes, 1)
        self.dilation = per_axis("dilation", dilation, axes, 1)
        self.padding = padding
        self._pads = padding_of(padding, axes, self.kernel_size, self.stride, self.dilation)
        self.groups = check_features("groups", groups)
        divided("in_channels", self.in_channels, self.groups)
        divided("out_channels", self.out_channels, self.groups)

    def _padded(self, channels: Tensor, mode: str = "zeros") -> tuple[Tensor, Any]:
        """An input, and the padding that is left to PyTorch's convolution: zeros, as many before as after."""
        if mode == "zeros" and all(before == after for before, after in self._pads):
            return channels, tuple(before for before, _ in self._pads)
        pads = [size for pair in reversed(self._pads) for size in pair]
        beside = "constant" if mode == "zeros" else mode
        return torch.nn.functional.pad(channels, pads, beside), 0

    def _window_repr(self, has_bias: bool) -> tuple[str, ...]:
        """The options, for ``extra_repr``; those with their default are left out."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}",
            "" if self.padding == 0 else f"padding={self.padding!r}",
            "" if max(self.dilation) == 1 else f"dilation={self.dilation}",
            "" if self.groups == 1 else f"groups={self.groups}",
            "" if has_bias else "bias=False",
        )
