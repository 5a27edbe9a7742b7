"""The base of Clifford convolutions."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter, ParameterList

from ..._ops import checks
from .._module import check_choice, joined
from ._checks import PADDING_MODES, check_field, check_type
from ._expansion import assembled, product_kernel, stacked
from ._kept import KernelLayer
from ._layout import bias_of_channels, memory_format_of, to_blades, to_channels
from ._rotation import rotation_blocks
from ._signature import OfSignature, SignatureLike, blade_indices
from ._window import CONVOLUTIONS, Window


class CliffordConv(Window, OfSignature, KernelLayer):
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
        window = kernel_size, stride, padding, dilation, groups
        self._set_window(self.axes, (in_channels, out_channels), *window)
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

    def kernel(self) -> Tensor:
        """The kernel of the real convolution, ``[groups * out_blades * out / groups, in_blades * in / groups, *kernel]``.

        It has gradients by the weights, of every order.
        """
        w = stacked(list(self.weight))
        if not self.rotation:
            return product_kernel(w, self.squares, self.in_blades, self.out_blades, self.groups)
        blocks = rotation_blocks(w)
        every = tuple(range(self.n_blades))
        if (self.in_blades, self.out_blades) != (every, every):
            # An index that is a list would wait for its copy to a GPU, and could not be captured.
            rows = [torch.stack([blocks[o, i] for i in self.in_blades]) for o in self.out_blades]
            blocks = torch.stack(rows)
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
        channels, weights = to_channels(x, self.groups), list(self.weight)
        memory_format = memory_format_of(channels)
        kernel = self._kernel_for(x.device.type, weights, weights[0].dtype, memory_format)
        bias = None if self.bias is None else bias_of_channels(self.bias, self.groups)
        padded, padding = self._padded(channels, self.padding_mode)
        options = self.stride, padding, self.dilation, self.groups
        out = CONVOLUTIONS[self.axes](padded, kernel, bias, *options)
        return to_blades(out, len(self.out_blades), self.groups)

    def extra_repr(self) -> str:
        every = tuple(range(self.n_blades))
        return joined(
            f"{self.squares}, {self.in_channels}, {self.out_channels}",
            *self._window_repr(self.bias is not None),
            "" if self.padding_mode == "zeros" else f"padding_mode={self.padding_mode!r}",
            "rotation=True" if self.rotation else "",
            "" if self.in_blades == every else f"in_blades={self.in_blades}",
            "" if self.out_blades == every else f"out_blades={self.out_blades}",
        )
