"""Convolutions between physical fields and multivectors."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ._conv import CliffordConv
from ._signature import SignatureLike
from .grids import CliffordConv2d, CliffordConv3d

_SCALAR_AND_VECTOR = (0, 1, 2)
_VECTOR_AND_BIVECTOR = (1, 2, 3, 4, 5, 6)


class _Fields(CliffordConv):
    """A convolution whose input or output is the fields of a space with as many vectors as the grid has axes."""

    field: ClassVar[tuple[int, ...]]
    """The blades of the fields."""

    def _keep(self, g: Any, device: torch.device | str | None) -> None:
        super()._keep(g, device)
        if self.dim != self.axes:
            raise ValueError(f"g: expected {self.axes} squares of vectors, got {self.squares}")


class _Encoder(_Fields):
    """From fields to multivectors."""

    def __init__(
        self,
        g: SignatureLike,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] = 1,
        *args: Any,
        **options: Any,
    ) -> None:
        sizes = in_channels, out_channels, kernel_size
        super().__init__(g, *sizes, *args, in_blades=self.field, **options)


class _Decoder(_Fields):
    """From multivectors to fields."""

    def __init__(
        self,
        g: SignatureLike,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] = 1,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = False,
        *args: Any,
        **options: Any,
    ) -> None:
        window = kernel_size, stride, padding, dilation, groups, bias
        super().__init__(
            g, in_channels, out_channels, *window, *args, out_blades=self.field, **options
        )


class CliffordConv2dScalarVectorEncoder(_Encoder, CliffordConv2d):
    """From a scalar and a vector field of the plane to multivectors: :class:`CliffordConv2d` with ``in_blades=(0, 1, 2)``.

    Shapes:
        - input ``[batch, in_channels, height, width, 3]``, output ``[batch, out_channels, height', width', 4]``
        - parameters as in :class:`CliffordConv2d`

    Args: the arguments of :class:`CliffordConv2d`; ``kernel_size`` is 1 by default.

    Source: cliffordlayers' layer of the same name, with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv2dScalarVectorEncoder((1, 1), 4, 8)
        >>> layer(torch.randn(2, 4, 16, 16, 3)).shape
        torch.Size([2, 8, 16, 16, 4])
    """

    field = _SCALAR_AND_VECTOR


class CliffordConv2dScalarVectorDecoder(_Decoder, CliffordConv2d):
    """From multivectors to a scalar and a vector field of the plane: :class:`CliffordConv2d` with ``out_blades=(0, 1, 2)``.

    Shapes:
        - input ``[batch, in_channels, height, width, 4]``, output ``[batch, out_channels, height', width', 3]``
        - parameters as in :class:`CliffordConv2d`; a bias is ``[3, out_channels]``

    Args: the arguments of :class:`CliffordConv2d`; ``kernel_size`` is 1 and ``bias`` is False by default.

    Source: cliffordlayers' layer of the same name, with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv2dScalarVectorDecoder((1, 1), 8, 1)
        >>> layer(torch.randn(2, 8, 16, 16, 4)).shape
        torch.Size([2, 1, 16, 16, 3])
    """

    field = _SCALAR_AND_VECTOR


class CliffordConv3dMaxwellEncoder(_Encoder, CliffordConv3d):
    """From an electric and a magnetic field to multivectors: :class:`CliffordConv3d` whose input is a vector and a bivector.

    Shapes:
        - input ``[batch, in_channels, depth, height, width, 6]``, output ``[batch, out_channels, depth', height', width', 8]``
        - parameters as in :class:`CliffordConv3d`

    Args: the arguments of :class:`CliffordConv3d`; ``kernel_size`` is 1 by default.

    Source: cliffordlayers' layer of the same name, with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv3dMaxwellEncoder((1, 1, 1), 2, 3)
        >>> layer(torch.randn(1, 2, 4, 4, 4, 6)).shape
        torch.Size([1, 3, 4, 4, 4, 8])
    """

    field = _VECTOR_AND_BIVECTOR


class CliffordConv3dMaxwellDecoder(_Decoder, CliffordConv3d):
    """From multivectors to an electric and a magnetic field: :class:`CliffordConv3d` whose output is a vector and a bivector.

    Shapes:
        - input ``[batch, in_channels, depth, height, width, 8]``, output ``[batch, out_channels, depth', height', width', 6]``
        - parameters as in :class:`CliffordConv3d`; a bias is ``[6, out_channels]``

    Args: the arguments of :class:`CliffordConv3d`; ``kernel_size`` is 1 and ``bias`` is False by default.

    Source: cliffordlayers' layer of the same name, with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv3dMaxwellDecoder((1, 1, 1), 3, 2)
        >>> layer(torch.randn(1, 3, 4, 4, 4, 8)).shape
        torch.Size([1, 2, 4, 4, 4, 6])
    """

    field = _VECTOR_AND_BIVECTOR
