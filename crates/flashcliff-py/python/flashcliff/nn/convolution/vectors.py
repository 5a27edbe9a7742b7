"""Group-action convolutions of vectors of space on the plane."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter, ParameterList

from ..._ops import checks
from .._module import joined
from ._checks import check_field, check_type
from ._expansion import assembled, stacked
from ._kept import KernelLayer
from ._layout import bias_of_channels, memory_format_of, to_blades, to_channels
from ._rotation import turning_blocks
from ._window import Window


class VectorConv(Window, KernelLayer):
    """The base of convolutions that turn vectors."""

    transposed: ClassVar[bool]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] = 1,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if self.transposed and padding == "same":
            raise ValueError(
                "padding: expected integers or \"valid\" for a transposed convolution, got 'same'"
            )
        window = kernel_size, stride, padding, dilation, groups
        self._set_window(2, (in_channels, out_channels), *window)
        sizes = self.out_channels, self.in_channels
        first, second = reversed(sizes) if self.transposed else sizes
        shape = (first, second // self.groups, *self.kernel_size)

        def empty(*shape: int) -> Parameter:
            return Parameter(torch.empty(shape, device=device, dtype=dtype))

        # Names and their order are as in cliffordlayers.
        self.weights = ParameterList(empty(*shape) for _ in range(4))
        if checks.flag("bias", bias):
            self.bias = ParameterList(empty(self.out_channels) for _ in range(3))
        else:
            self.register_parameter("bias", None)
        self.scale_param = empty(*shape)
        self.zero_kernel = Parameter(torch.zeros_like(self.scale_param), requires_grad=False)
        self.weights.append(self.scale_param)
        self.weights.append(self.zero_kernel)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters: uniform, within the root of one over the number of inputs of a weight."""
        bound = 1 / math.sqrt(math.prod(self.scale_param.shape[1:]))
        for weight in list(self.weights)[:5]:
            torch.nn.init.uniform_(weight, -bound, bound)
        if self.bias is not None:
            for bias in self.bias:
                torch.nn.init.uniform_(bias, -bound, bound)

    def kernel(self) -> Tensor:
        """The kernel of the real convolution, of PyTorch's shape for three times the channels. It has gradients of every order."""
        w = stacked(list(self.weights)[:5])
        return assembled(turning_blocks(w[:4], w[4]), self.groups)

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[batch, in_channels, height, width, 3]`` to ``[batch, out_channels, height', width', 3]``.

        Raises:
            ValueError: another shape.
            TypeError: another element type than the weights have, without autocast.
            RuntimeError: ``x`` is on another device than the weights.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        name = type(self).__name__
        check_field(name, x, 2, self.in_channels, 3)
        weights = list(self.weights)[:5]
        check_type(name, x, weights[0])
        channels = to_channels(x, self.groups)
        memory_format = memory_format_of(channels)
        kernel = self._kernel_for(x.device.type, weights, weights[0].dtype, memory_format)
        out = self._convolved(channels, kernel, self._bias())
        return to_blades(out, 3, self.groups)

    def _bias(self) -> Tensor | None:
        if self.bias is None:
            return None
        return bias_of_channels(stacked(list(self.bias)), self.groups)

    def _convolved(self, channels: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """PyTorch's convolution, transposed or not."""
        if self.transposed:
            padding = tuple(before for before, _ in self._pads)
            found: Tensor = torch.nn.functional.conv_transpose2d(
                channels, kernel, bias, self.stride, padding, 0, self.groups, self.dilation
            )
            return found
        padded, left = self._padded(channels)
        options = self.stride, left, self.dilation, self.groups
        return torch.nn.functional.conv2d(padded, kernel, bias, *options)

    def extra_repr(self) -> str:
        return joined(
            f"{self.in_channels}, {self.out_channels}",
            *self._window_repr(self.bias is not None),
        )


class CliffordG3Conv2d(VectorConv):
    """A convolution of vectors of space on a plane, whose weights are scaled rotations.

    ``y[o](s) = bias[o] + sum over channels i and places t of scale[o, i](t) R[o, i](t) x[i](stride s + dilation t - padding)``

    ``R`` is the rotation by the normed quaternion ``w / sqrt(|w|^2 + 1e-4)``. The layer is one real PyTorch convolution, which on GPUs
    is a cuDNN call, with three times the channels; its kernel is expanded, and kept, as in :class:`CliffordConv2d`.

    Shapes:
        - input ``[batch, in_channels, height, width, 3]``, output ``[batch, out_channels, height', width', 3]``
        - ``weights.0`` to ``weights.3`` ``[out_channels, in_channels / groups, *kernel]``, the quaternions; ``weights.4``, which is
          ``scale_param`` too; ``weights.5``, which is ``zero_kernel``, is not trained and does nothing
        - ``bias.0`` to ``bias.2`` ``[out_channels]``

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the window, one number or two.
        stride: the step of the window.
        padding: what is added before and after each axis, or ``"same"`` or ``"valid"``.
        dilation: the step between the places of the window.
        groups: channels are split into so many groups that do not see each other.
        bias: whether each output channel has a vector that is added to it.

    Raises:
        ValueError: a size or a shape that does not fit.
        TypeError: an element type, or an option of another kind.

    - Types: the types of PyTorch's convolution. Under autocast the kernel is expanded in the type of the weights and then cast.
    - Deterministic: as for :class:`CliffordConv2d`.
    - Derivatives: every order.
    - Commutes with: translations of the grid, as far as padding and stride allow.
    - Source: cliffordlayers' layer of the same name (Ruhe et al., "Geometric Clifford algebra networks", arXiv 2302.06594, section 4.2),
      with the names of its state dict. There ``groups`` splits real channels, so that groups hold other blades, not other channels.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordG3Conv2d(4, 8, kernel_size=3, padding=1)
        >>> layer(torch.randn(2, 4, 16, 16, 3)).shape
        torch.Size([2, 8, 16, 16, 3])
    """

    transposed = False


class CliffordG3ConvTranspose2d(VectorConv):
    """The transposed convolution of vectors of space: the gradient of :class:`CliffordG3Conv2d` by its input.

    Each input vector is turned by the inverse rotations, and added to the places of a window of the output.

    Shapes:
        - input ``[batch, in_channels, height, width, 3]``, output ``[batch, out_channels, height', width', 3]``
        - ``weights.0`` to ``weights.5`` ``[in_channels, out_channels / groups, *kernel]``, ``bias.0`` to ``bias.2`` ``[out_channels]``,
          as in :class:`CliffordG3Conv2d`

    Args, types, errors, symmetries and source: as for :class:`CliffordG3Conv2d`, without ``padding="same"``.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordG3ConvTranspose2d(8, 4, kernel_size=4, stride=2, padding=1)
        >>> layer(torch.randn(2, 8, 8, 8, 3)).shape
        torch.Size([2, 4, 16, 16, 3])
    """

    transposed = True
