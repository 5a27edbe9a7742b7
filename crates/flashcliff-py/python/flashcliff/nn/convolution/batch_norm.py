"""Batch norms of multivectors on grids."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from ..._ops import checks
from ...rotors._checks import check_kind
from .._module import check_features
from ._signature import SignatureLike, squares_of
from ._whitening import Statistics, whitened


class CliffordNorm(torch.nn.Module):
    """The base of norms that whiten the blades of each channel. The signature says how many blades there are, and nothing else."""

    axes: ClassVar[tuple[int, ...]]
    """The numbers of axes of space that a call accepts."""
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor
    running_cov: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        g: SignatureLike,
        channels: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.squares = squares_of("g", g)
        self.n_blades = blades = 1 << len(self.squares)
        self.channels = check_features("channels", channels)
        self.eps = checks.epsilon("eps", eps)
        self.momentum = None if momentum is None else checks.number("momentum", momentum)
        self.affine = checks.flag("affine", affine)
        self.track_running_stats = checks.flag("track_running_stats", track_running_stats)
        shapes = {"weight": (blades, blades, self.channels), "bias": (blades, self.channels)}
        for name, shape in shapes.items():
            made = Parameter(torch.empty(shape, device=device, dtype=dtype)) if affine else None
            self.register_parameter(name, made)
        shapes = {"running_mean": shapes["bias"], "running_cov": shapes["weight"]}
        for name, shape in shapes.items():
            kept = torch.empty(shape, device=device, dtype=dtype) if track_running_stats else None
            self.register_buffer(name, kept)
        count = torch.tensor(0, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_running_stats()
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Sets the running mean to 0, and the running covariance to the identity."""
        if self.track_running_stats:
            self.num_batches_tracked.zero_()
            self.running_mean.zero_()
            self.running_cov.copy_(torch.eye(self.n_blades).unsqueeze(-1))

    def reset_parameters(self) -> None:
        """Sets the weight to the identity, and the bias to 0."""
        if self.weight is not None and self.bias is not None:
            with torch.no_grad():
                self.weight.copy_(torch.eye(self.n_blades).unsqueeze(-1))
                self.bias.zero_()

    def _check(self, x: Tensor, channels: int) -> None:
        name = type(self).__name__
        check_kind(name, "x", x)
        axes = self.axes
        fits = x.dim() - 3 in axes and x.shape[1] == channels and x.shape[-1] == self.n_blades
        if not fits:
            said = " or ".join(map(str, axes))
            raise ValueError(
                f"{name}: `x` must be [batch, {channels}, *space, {self.n_blades}] with {said} axes of space, got {list(x.shape)}"
            )
        if x.numel() == 0:
            raise ValueError(f"{name}: expected at least one item, got {list(x.shape)}")

    def _known(self) -> Statistics | None:
        """The running statistics, if a call uses them."""
        if self.training or not self.track_running_stats:
            return None
        return self.running_mean, self.running_cov

    def _seen(self, mean: Tensor, covariance: Tensor) -> None:
        """Adds the statistics of a batch, ``[sets, blades, channels]`` and ``[sets, channels, blades, blades]``, to the running ones."""
        if not (self.training and self.track_running_stats):
            return
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = self.momentum
            if share is None:
                share = 1 / float(self.num_batches_tracked)
            self.running_mean.lerp_(mean.mean(0).to(self.running_mean), share)
            own = covariance.mean(0).movedim(0, -1)
            self.running_cov.lerp_(own.to(self.running_cov), share)

    def extra_repr(self) -> str:
        return (
            f"{self.squares}, {self.channels}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class CliffordBatchNorm(CliffordNorm):
    """The base of batch norms."""

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[batch, channels, *space, blades]``, normed, in the same shape.

        Raises:
            ValueError: another shape, or no item.
            TypeError: ``x`` has no real floating-point elements.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        self._check(x, self.channels)
        rows = x.movedim(-1, 1)
        items = rows.flatten(3) if rows.dim() > 3 else rows.unsqueeze(3)
        out = whitened(items, (0, 3), self._known(), self.weight, self.bias, self.eps, self._seen)
        return out.reshape(rows.shape).movedim(1, -1)


class CliffordBatchNorm1d(CliffordBatchNorm):
    """The batch norm of multivectors on a line, as :class:`CliffordBatchNorm2d` on a plane, or without a grid.

    Shapes:
        - input and output ``[batch, channels, width, blades]`` or ``[batch, channels, blades]``
        - parameters and buffers as in :class:`CliffordBatchNorm2d`

    Args, types, errors and source: as for :class:`CliffordBatchNorm2d`.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordBatchNorm1d((1,), 4)(torch.randn(8, 4, 16, 2)).shape
        torch.Size([8, 4, 16, 2])
    """

    axes = (0, 1)


class CliffordBatchNorm2d(CliffordBatchNorm):
    """Whitens the blades of each channel by the mean and the covariance over the batch and space.

    ``y = weight U^-1 (x - mean) + bias`` for each channel, with the Cholesky decomposition ``U^T U = covariance + eps max(covariance)
    identity``.

    Both matrices are multiplied once for each channel, so each multivector is read twice and multiplied by one matrix. The layer is made of
    PyTorch operations.

    Shapes:
        - input and output ``[batch, channels, height, width, blades]``
        - ``weight`` ``[blades, blades, channels]``, starts as the identity
        - ``bias`` ``[blades, channels]``, starts at 0; its memory is read as ``[channels, blades]``, as cliffordlayers does
        - buffers ``running_mean`` ``[blades, channels]``, ``running_cov`` ``[blades, blades, channels]``, ``num_batches_tracked`` ``[]``

    Args:
        g: the square of each vector, such as ``(1, 1)``. It says how many blades there are.
        channels: channels of the input.
        eps: what is added to the covariance, times its largest entry.
        momentum: the share of a batch in the running statistics; ``None`` weighs all batches equally.
        affine: whether there are ``weight`` and ``bias``.
        track_running_stats: whether running statistics are kept, and used after ``eval()``.

    Raises:
        ValueError: a size, a shape or a signature that does not fit.
        TypeError: an element type, or an option of another kind.

    - Types: statistics and matrices of 16-bit inputs, and under autocast, are in float32. The result has the type of ``x``.
    - Deterministic: as PyTorch's means and matrix products are.
    - Derivatives: every order.
    - Commutes with: translations of the grid. It does not commute with rotations: blades are whitened as numbers.
    - Source: cliffordlayers' layer of the same name (arXiv 2209.04934, section 3), with the names of its state dict. It solves with the
      upper factor of the covariance, so the covariance of the result is not the identity, there as here. Multivectors that are all equal
      become the bias, where cliffordlayers has an error.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordBatchNorm2d((1, 1), 4)(torch.randn(8, 4, 16, 16, 4)).shape
        torch.Size([8, 4, 16, 16, 4])
    """

    axes = (2,)


class CliffordBatchNorm3d(CliffordBatchNorm):
    """The batch norm of multivectors in a volume, as :class:`CliffordBatchNorm2d` on a plane.

    Shapes:
        - input and output ``[batch, channels, depth, height, width, blades]``
        - parameters and buffers as in :class:`CliffordBatchNorm2d`

    Args, types, errors and source: as for :class:`CliffordBatchNorm2d`.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordBatchNorm3d((1, 1, 1), 2)(torch.randn(2, 2, 4, 4, 4, 8)).shape
        torch.Size([2, 2, 4, 4, 4, 8])
    """

    axes = (3,)
