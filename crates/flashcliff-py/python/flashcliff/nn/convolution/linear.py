"""The linear map of multivectors with multivector weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from ..._ops import checks
from ...rotors._checks import check_kind
from .._module import check_features
from ._checks import check_type
from ._expansion import product_kernel
from ._kept import KernelLayer
from ._layout import bias_of_channels
from ._signature import OfSignature, SignatureLike


class CliffordLinear(OfSignature, KernelLayer):
    """A linear map of channels by geometric products with multivector weights on the right.

    ``y[o] = bias[o] + sum over i of x[i] * weight[o, i]``

    The layer is one real PyTorch matrix product. Its matrix is expanded from the weights by the sign table of the signature.
    It is kept as the kernel of :class:`CliffordConv2d` is.

    Shapes:
        - input ``[*batch, in_channels, blades]``, output ``[*batch, out_channels, blades]``
        - ``weight`` ``[blades, out_channels, in_channels]``, starts uniform within ``1 / sqrt(blades in_channels)``
        - ``bias`` ``[blades, out_channels]``, starts likewise
        - ``g`` ``[vectors]``, a buffer

    Args:
        g: the square of each vector, 1, -1 or 0; 1 to 8 of them.
        in_channels: channels of the input.
        out_channels: channels of the output.
        bias: whether each output channel has a multivector that is added to it.

    Raises:
        ValueError: a size, a shape or a signature that does not fit.
        TypeError: an element type, or an option of another kind.

    - Types: the types of PyTorch's linear map. A state dict with another signature is a ``RuntimeError``.
    - Deterministic: the expansion and its gradient are; the matrix product is as PyTorch's.
    - Derivatives: every order.
    - Commutes with: without bias, products with a constant multivector from the left. It does not commute with rotations;
      :class:`flashcliff.nn.MVLinear` does.
    - Source: cliffordlayers' ``CliffordLinear`` (arXiv 2209.04934), with the names of its state dict, whose call without a bias fails.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordLinear((1, 1, 1), 4, 16)
        >>> layer(torch.randn(32, 4, 8)).shape
        torch.Size([32, 16, 8])
    """

    def __init__(
        self,
        g: SignatureLike,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._keep(g, device)
        self.in_channels = check_features("in_channels", in_channels)
        self.out_channels = check_features("out_channels", out_channels)
        shape = (self.n_blades, self.out_channels, self.in_channels)
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        if checks.flag("bias", bias):
            self.bias = Parameter(torch.empty(shape[:2], device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters."""
        bound = 1 / math.sqrt(self.in_channels * self.n_blades)
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def kernel(self) -> Tensor:
        """The real matrix, ``[blades * out_channels, blades * in_channels]``. It has gradients by the weight, of every order."""
        every = tuple(range(self.n_blades))
        return product_kernel(self.weight, self.squares, every, every)

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[*batch, in_channels, blades]`` to ``[*batch, out_channels, blades]``.

        Raises:
            ValueError: another shape.
            TypeError: another element type than the weight has, without autocast.
            RuntimeError: ``x`` is on another device than the weight.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        check_kind("CliffordLinear", "x", x)
        if x.dim() < 2 or x.shape[-2:] != (self.in_channels, self.n_blades):
            raise ValueError(
                f"CliffordLinear: `x` must be [*batch, {self.in_channels}, {self.n_blades}], the blades last, got {list(x.shape)}"
            )
        weight = self.weight
        check_type("CliffordLinear", x, weight)
        matrix = self._kernel_for(x.device.type, [weight], weight.dtype)
        bias = None if self.bias is None else bias_of_channels(self.bias)
        out = torch.nn.functional.linear(x.transpose(-1, -2).flatten(-2), matrix, bias)
        return out.unflatten(-1, (self.n_blades, self.out_channels)).transpose(-1, -2)

    def extra_repr(self) -> str:
        return (
            f"{self.squares}, {self.in_channels}, {self.out_channels}, bias={self.bias is not None}"
        )
