"""Gates and a norm of vectors of space on grids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..._ops import checks
from ...rotors._checks import check_kind
from .._module import check_features
from ._checks import divided


class CliffordG3LinearVSiLU(torch.nn.Module):
    """Multiplies vectors by the sigmoid of a weighted sum of their components.

    ``y[c] = x[c] sigmoid(bias[c] + sum over i of weight[c, i] x[c, i])``. PyTorch computes it as a product, a sum and a product;
    cliffordlayers calls a depthwise convolution for the sum.

    Shapes:
        - input and output ``[batch, channels, *space, 3]``
        - ``conv.weight`` ``[channels, 1, 1, 1, 3]``, ``conv.bias`` ``[channels]``; they start as in ``torch.nn.Conv3d``

    Args:
        channels: channels of the input.

    Commutes with: translations of the grid.

    Source: cliffordlayers' layer of the same name (arXiv 2302.06594, section 3), with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordG3LinearVSiLU(4)(torch.randn(2, 4, 8, 8, 3)).shape
        torch.Size([2, 4, 8, 8, 3])
    """

    def __init__(
        self,
        channels: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        count = check_features("channels", channels)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        # The names of its parameters are used, and how they start; it is not called.
        self.conv = torch.nn.Conv3d(count, count, (1, 1, 3), groups=count, **options)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[batch, channels, *space, 3]``, gated, in the same shape."""
        _check_vectors("CliffordG3LinearVSiLU", x, self.conv.out_channels)
        ones = [1] * (x.dim() - 3)
        weight, bias = self.conv.weight, self.conv.bias
        assert bias is not None
        sums = (x * weight.view(-1, *ones, 3)).sum(-1, keepdim=True)
        return x * torch.sigmoid(sums + bias.view(-1, *ones, 1))


class CliffordG3SumVSiLU(torch.nn.Module):
    """Multiplies vectors by the sigmoid of the sum of their components.

    Shapes: input and output ``[batch, channels, *space, 3]``.

    Source: cliffordlayers' layer of the same name (arXiv 2302.06594, section 3).

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordG3SumVSiLU()(torch.randn(2, 4, 8, 8, 3)).shape
        torch.Size([2, 4, 8, 8, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[batch, channels, *space, 3]``, gated, in the same shape."""
        _check_vectors("CliffordG3SumVSiLU", x)
        return x * torch.sigmoid(x.sum(-1, keepdim=True))


class CliffordG3MeanVSiLU(torch.nn.Module):
    """Multiplies vectors by the sigmoid of the mean of their components.

    Shapes: input and output ``[batch, channels, *space, 3]``.

    Source: cliffordlayers' layer of the same name (arXiv 2302.06594, section 3).

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordG3MeanVSiLU()(torch.randn(2, 4, 8, 8, 3)).shape
        torch.Size([2, 4, 8, 8, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[batch, channels, *space, 3]``, gated, in the same shape."""
        _check_vectors("CliffordG3MeanVSiLU", x)
        return x * torch.sigmoid(x.mean(-1, keepdim=True))


class CliffordG3GroupNorm(torch.nn.Module):
    """Takes the mean vector of groups of channels away, and divides by the mean length if asked.

    ``y = weight (x - mean) / (mean length of x - mean) + bias``, with means over space and the channels of a group, and the division with
    ``scale_norm`` alone. There, groups whose vectors are all equal give NaN, as in cliffordlayers.

    Shapes:
        - input and output ``[batch, num_features, *space, num_blades]``
        - ``weight`` ``[num_features]``, starts at 1; ``bias`` ``[num_features, num_blades]``, starts at 0

    Args:
        num_groups: into how many groups the channels are split.
        num_features: channels of the input.
        num_blades: components of the input, 3 for vectors of space.
        scale_norm: whether lengths are normed.

    Commutes with: translations of the grid; without bias, rotations of the vectors.

    Source: cliffordlayers' layer of the same name (arXiv 2302.06594), with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordG3GroupNorm(2, 4, 3, scale_norm=True)(torch.randn(2, 4, 8, 8, 3)).shape
        torch.Size([2, 4, 8, 8, 3])
    """

    def __init__(
        self,
        num_groups: int,
        num_features: int,
        num_blades: int,
        scale_norm: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_groups = check_features("num_groups", num_groups)
        self.num_features = check_features("num_features", num_features)
        divided("num_features", self.num_features, self.num_groups)
        self.num_blades = check_features("num_blades", num_blades)
        self.scale_norm = checks.flag("scale_norm", scale_norm)
        self.weight = Parameter(torch.ones(self.num_features, device=device, dtype=dtype))
        shape = self.num_features, self.num_blades
        self.bias = Parameter(torch.zeros(shape, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[batch, num_features, *space, num_blades]``, normed, in the same shape."""
        _check_vectors("CliffordG3GroupNorm", x, self.num_features, self.num_blades)
        grouped = x.unflatten(1, (self.num_groups, -1))
        over = tuple(range(2, grouped.dim() - 1))
        grouped = grouped - grouped.mean(over, keepdim=True)
        if self.scale_norm:
            lengths = torch.linalg.vector_norm(grouped, dim=-1, keepdim=True)
            grouped = grouped / lengths.mean(over, keepdim=True)
        ones = [1] * (x.dim() - 3)
        weight = self.weight.view(-1, *ones, 1)
        bias = self.bias.view(-1, *ones, self.num_blades)
        return grouped.flatten(1, 2) * weight + bias

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_features}, {self.num_blades}, scale_norm={self.scale_norm}"


def _check_vectors(layer: str, x: Any, channels: int | None = None, components: int = 3) -> None:
    """Checks that something is a tensor of vectors on a grid."""
    check_kind(layer, "x", x)
    fits = x.dim() >= 3 and x.shape[-1] == components and channels in (None, x.shape[1])
    if not fits:
        count = "channels" if channels is None else channels
        raise ValueError(
            f"{layer}: `x` must be [batch, {count}, *space, {components}], the components last, got {list(x.shape)}"
        )
