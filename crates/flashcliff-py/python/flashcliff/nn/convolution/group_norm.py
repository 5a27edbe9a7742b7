"""Group norms of multivectors on grids."""

from __future__ import annotations

import torch
from torch import Tensor

from .._module import check_features
from ._checks import divided
from ._signature import SignatureLike
from ._whitening import whitened
from .batch_norm import CliffordNorm


class CliffordGroupNorm(CliffordNorm):
    """The base of group norms."""

    def __init__(
        self,
        g: SignatureLike,
        num_groups: int,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        groups = check_features("num_groups", num_groups)
        divided("channels", check_features("channels", channels), groups)
        own = g, channels // groups, eps, momentum, affine, track_running_stats
        super().__init__(*own, device=device, dtype=dtype)
        self.num_groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[batch, channels, *space, blades]``, normed, in the same shape.

        Raises:
            ValueError: another shape, or no item.
            TypeError: ``x`` has no real floating-point elements.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        self._check(x, self.channels * self.num_groups)
        rows = x.movedim(-1, 1)
        items = rows.reshape(*rows.shape[:2], self.channels, -1)
        out = whitened(items, (3,), self._known(), self.weight, self.bias, self.eps, self._seen)
        return out.reshape(rows.shape).movedim(1, -1)

    def extra_repr(self) -> str:
        return f"num_groups={self.num_groups}, {super().extra_repr()}"


class CliffordGroupNorm1d(CliffordGroupNorm):
    """The group norm of multivectors on a line, as :class:`CliffordGroupNorm2d` on a plane, or without a grid.

    Shapes:
        - input and output ``[batch, channels, width, blades]`` or ``[batch, channels, blades]``
        - parameters and buffers as in :class:`CliffordGroupNorm2d`

    Args, types, errors and source: as for :class:`CliffordGroupNorm2d`.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordGroupNorm1d((1,), 2, 4)(torch.randn(8, 4, 16, 2)).shape
        torch.Size([8, 4, 16, 2])
    """

    axes = (0, 1)


class CliffordGroupNorm2d(CliffordGroupNorm):
    """Whitens the blades within each sample, over space and ``num_groups`` neighbouring channels.

    The formula is that of :class:`CliffordBatchNorm2d`, with the mean and the covariance over space and ``num_groups`` consecutive
    channels of one sample. These channels share a weight and a bias.

    Shapes:
        - input and output ``[batch, channels, height, width, blades]``
        - ``weight`` ``[blades, blades, channels / num_groups]``, starts as the identity
        - ``bias`` ``[blades, channels / num_groups]``, starts at 0; its memory is read as ``[channels / num_groups, blades]``, as
          cliffordlayers does
        - with ``track_running_stats`` the buffers of :class:`CliffordBatchNorm2d`, for ``channels / num_groups`` channels

    Args:
        num_groups: how many neighbouring channels are normed together, as in cliffordlayers: 1 norms each channel by itself, and
            ``channels`` all together. It divides the number of channels.
        g, channels, eps, momentum, affine: as for :class:`CliffordBatchNorm2d`.
        track_running_stats: whether means of statistics over samples are kept, and used after ``eval()``.

    Errors, types, determinism, derivatives, and what it commutes with: as for :class:`CliffordBatchNorm2d`.

    - Source: cliffordlayers' layer of the same name (arXiv 2209.04934), with the names of its state dict. Two things differ. There, the
      bias of a sample depends on its place in a batch of several; here each sample gets the bias of a batch of one. And running
      statistics fail there.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordGroupNorm2d((1, 1), 2, 4)(torch.randn(8, 4, 16, 16, 4)).shape
        torch.Size([8, 4, 16, 16, 4])
    """

    axes = (2,)


class CliffordGroupNorm3d(CliffordGroupNorm):
    """The group norm of multivectors in a volume, as :class:`CliffordGroupNorm2d` on a plane.

    Shapes:
        - input and output ``[batch, channels, depth, height, width, blades]``
        - parameters and buffers as in :class:`CliffordGroupNorm2d`

    Args, types, errors and source: as for :class:`CliffordGroupNorm2d`.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordGroupNorm3d((1, 1, 1), 1, 2)(torch.randn(2, 2, 4, 4, 4, 8)).shape
        torch.Size([2, 2, 4, 4, 4, 8])
    """

    axes = (3,)
