"""The base of Clifford convolutions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter, ParameterList

from ..._ops import checks
from .._module import check_choice, check_features, joined
from ._autocast import turned_off, type_under_autocast
from ._checks import PADDING_MODES, check_field, check_type, divided, padding_of, per_axis
from ._expansion import assembled, product_kernel, stacked
from ._kept import KeptKernel
from ._layout import bias_of_channels, memory_format_of, to_blades, to_channels
from ._rotation import rotation_blocks
from ._signature import OfSignature, SignatureLike, blade_indices

_CONVOLUTIONS = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}


class CliffordConv(OfSignature):
    """A convolution of multivectors on a grid with ``axes`` axes."""

    axes: ClassVar[int]

    def __init__(
        self,
        g: SignatureLike,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] = 3,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        rotation: bool = False,
        *,
        in_blades: tuple[int, ...] | None = None,
        out_blades: tuple[int, ...] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._keep(g, device)
        self.in_channels = check_features("in_channels", in_channels)
        self.out_channels = check_features("out_channels", out_channels)
        self.kernel_size = per_axis("kernel_size", kernel_size, self.axes, 1)
        self.stride = per_axis("stride", stride, self.axes, 1)
        self.dilation = per_axis("dilation", dilation, self.axes, 1)
        self.padding = padding
        self._pads = padding_of(padding, self.axes, self.kernel_size, self.stride, self.dilation)
        self.groups = check_features("groups", groups)
        divided("in_channels", self.in_channels, self.groups)
        divided("out_channels", self.out_channels, self.groups)
        bias = checks.flag("bias", bias)
        self.padding_mode = check_choice("padding_mode", padding_mode, PADDING_MODES)
        self.rotation = checks.flag("rotation", rotation)
        if self.rotation and self.squares != (-1, -1):
            raise ValueError(
                f"rotation: expected the signature (-1, -1), the quaternions, got {self.squares}"
            )
        self.in_blades = blade_indices("in_blades", self.squares, in_blades)
        self.out_blades = blade_indices("out_blades", self.squares, out_blades)
        shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

        def empty(*shape: int) -> Parameter:
            return Parameter(torch.empty(shape, device=device, dtype=dtype))

        # Names and their order are as in cliffordlayers.
        self.weight = ParameterList(empty(*shape) for _ in range(self.n_blades))
        if bias:
            self.bias = empty(len(self.out_blades), self.out_channels)
        else:
            self.register_parameter("bias", None)
        if self.rotation:
            self.scale_param = empty(*shape)
            self.zero_kernel = Parameter(torch.zeros_like(self.scale_param), requires_grad=False)
            self.weight.append(self.scale_param)
            self.weight.append(self.zero_kernel)
        self._kept = KeptKernel()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters: uniform, within the root of one over the number of real inputs of an output."""
        fan = self.in_channels // self.groups * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan * self.n_blades)
        for weight in list(self.weight)[: self.n_blades]:
            torch.nn.init.uniform_(weight, -bound, bound)
        if self.rotation:
            torch.nn.init.uniform_(self.scale_param, -1 / math.sqrt(fan), 1 / math.sqrt(fan))
            torch.nn.init.zeros_(self.zero_kernel)
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def train(self, mode: bool = True) -> CliffordConv:
        """Sets the mode, and forgets the kernel that was kept."""
        self._kept.forget()
        super().train(mode)
        return self

    def kernel(self) -> Tensor:
        """The kernel of the real convolution, ``[groups * out_blades * out / groups, in_blades * in / groups, *kernel]``.

        It has gradients by the weights, of every order.
        """
        w = stacked(list(self.weight))
        if not self.rotation:
            return product_kernel(w, self.squares, self.in_blades, self.out_blades, self.groups)
        blocks = rotation_blocks(w)[list(self.out_blades)][:, list(self.in_blades)]
        return assembled(blocks, self.groups)

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[batch, in_channels, *space, in_blades]`` to ``[batch, out_channels, *space, out_blades]``.

        Raises:
            ValueError: another shape.
            TypeError: another element type than the weights have, without autocast.
            RuntimeError: ``x`` is on another device than the weights.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        name = type(self).__name__
        check_field(name, x, self.axes, self.in_channels, len(self.in_blades))
        check_type(name, x, self.weight[0])
        channels = to_channels(x, self.groups)
        kernel = self._kernel_for(channels)
        bias = None if self.bias is None else bias_of_channels(self.bias, self.groups)
        out = self._convolved(channels, kernel, bias)
        return to_blades(out, len(self.out_blades), self.groups)

    def _kernel_for(self, channels: Tensor) -> Tensor:
        """The kernel in the type and the memory format of an input."""
        device, memory_format = channels.device.type, memory_format_of(channels)
        weights = list(self.weight)
        dtype = type_under_autocast(device, weights[0].dtype)

        def make() -> Tensor:
            with turned_off(device):
                return self.kernel().to(dtype).contiguous(memory_format=memory_format)

        return self._kept.of(weights, (dtype, memory_format), make)

    def _convolved(self, channels: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """PyTorch's convolution."""
        padding: Any = tuple(before for before, _ in self._pads)
        uneven = any(before != after for before, after in self._pads)
        if self.padding_mode != "zeros" or uneven:
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            pads = [size for pair in reversed(self._pads) for size in pair]
            channels, padding = torch.nn.functional.pad(channels, pads, mode), 0
        convolve = _CONVOLUTIONS[self.axes]
        found: Tensor = convolve(
            channels, kernel, bias, self.stride, padding, self.dilation, self.groups
        )
        return found

    def extra_repr(self) -> str:
        every = tuple(range(self.n_blades))
        return joined(
            f"{self.squares}, {self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
            "" if self.padding == 0 else f"padding={self.padding!r}",
            "" if max(self.dilation) == 1 else f"dilation={self.dilation}",
            "" if self.groups == 1 else f"groups={self.groups}",
            "" if self.bias is not None else "bias=False",
            "" if self.padding_mode == "zeros" else f"padding_mode={self.padding_mode!r}",
            "rotation=True" if self.rotation else "",
            "" if self.in_blades == every else f"in_blades={self.in_blades}",
            "" if self.out_blades == every else f"out_blades={self.out_blades}",
        )
