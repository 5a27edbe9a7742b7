"""Group-action convolutions of vectors of space on the plane."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter, ParameterList

from ..._ops import checks
from .._module import check_features, joined
from ._autocast import turned_off, type_under_autocast
from ._checks import check_field, check_type, divided, padding_of, per_axis
from ._expansion import assembled, stacked
from ._kept import KeptKernel
from ._layout import memory_format_of, to_blades, to_channels
from ._rotation import turning_blocks


class VectorConv(torch.nn.Module):
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
        self.in_channels = check_features("in_channels", in_channels)
        self.out_channels = check_features("out_channels", out_channels)
        self.kernel_size = per_axis("kernel_size", kernel_size, 2, 1)
        self.stride = per_axis("stride", stride, 2, 1)
        self.dilation = per_axis("dilation", dilation, 2, 1)
        self.padding = padding
        if self.transposed and padding == "same":
            raise ValueError(
                "padding: expected integers or \"valid\" for a transposed convolution, got 'same'"
            )
        self._pads = padding_of(padding, 2, self.kernel_size, self.stride, self.dilation)
        self.groups = check_features("groups", groups)
        divided("in_channels", self.in_channels, self.groups)
        divided("out_channels", self.out_channels, self.groups)
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
        self._kept = KeptKernel()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters: uniform, within the root of one over the number of inputs of a weight."""
        bound = 1 / math.sqrt(math.prod(self.scale_param.shape[1:]))
        for weight in list(self.weights)[:5]:
            torch.nn.init.uniform_(weight, -bound, bound)
        if self.bias is not None:
            for bias in self.bias:
                torch.nn.init.uniform_(bias, -bound, bound)

    def train(self, mode: bool = True) -> VectorConv:
        """Sets the mode, and forgets the kernel that was kept."""
        self._kept.forget()
        super().train(mode)
        return self

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
        device, memory_format = x.device.type, memory_format_of(channels)
        dtype = type_under_autocast(device, weights[0].dtype)

        def make() -> Tensor:
            with turned_off(device):
                return self.kernel().to(dtype).contiguous(memory_format=memory_format)

        kernel = self._kept.of(weights, (dtype, memory_format), make)
        out = self._convolved(channels, kernel, self._bias())
        return to_blades(out, 3, self.groups)

    def _bias(self) -> Tensor | None:
        if self.bias is None:
            return None
        own = stacked(list(self.bias)).unflatten(1, (self.groups, -1))
        return own.transpose(0, 1).reshape(-1)

    def _convolved(self, channels: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """PyTorch's convolution, transposed or not."""
        padding: Any = tuple(before for before, _ in self._pads)
        if self.transposed:
            found: Tensor = torch.nn.functional.conv_transpose2d(
                channels, kernel, bias, self.stride, padding, 0, self.groups, self.dilation
            )
            return found
        if any(before != after for before, after in self._pads):
            pads = [size for pair in reversed(self._pads) for size in pair]
            channels, padding = torch.nn.functional.pad(channels, pads), 0
        options = self.stride, padding, self.dilation, self.groups
        return torch.nn.functional.conv2d(channels, kernel, bias, *options)

    def extra_repr(self) -> str:
        return joined(
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
            "" if self.padding == 0 else f"padding={self.padding!r}",
            "" if max(self.dilation) == 1 else f"dilation={self.dilation}",
            "" if self.groups == 1 else f"groups={self.groups}",
            "" if self.bias is not None else "bias=False",
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
