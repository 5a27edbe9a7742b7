"""Whitening of multivectors, with an affine map, as one small matrix for each channel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._autocast import turned_off

_SMALL = (torch.float16, torch.bfloat16)

Statistics = tuple[Tensor, Tensor]
"""Means ``[..., blades, channels]`` and covariances ``[..., blades, blades, channels]``, over one set or several."""


def whitened(
    x: Tensor,
    over: tuple[int, ...],
    known: Statistics | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    seen: Callable[[Tensor, Tensor], None],
) -> Tensor:
    """``W U^-1 (x - mean) + bias`` for each channel, where ``U^T U`` is the covariance of the blades plus ``eps`` times its largest entry.

    ``W U^-1`` is formed once for each channel, so that each multivector is multiplied by one matrix. cliffordlayers solves a system and
    multiplies by a second matrix at each point.

    Args:
        x: ``[sets, blades, channels, items]``.
        over: the axes that statistics are over: ``(3,)``, or ``(0, 3)`` for statistics of all sets together.
        known: statistics that are used; the statistics of ``x`` by default.
        weight: ``[blades, blades, channels]``.
        bias: ``[blades, channels]``, whose memory is read as ``[channels, blades]``.
        eps: of the covariance.
        seen: gets the statistics of ``x``, one for each set or for all, if these were computed.

    Returns:
        A tensor of the shape of ``x``.
    """
    dtype = x.dtype
    with turned_off(x.device.type):
        if dtype in _SMALL:
            x = x.float()
        if known is None:
            mean, covariance, centred = _statistics(x, over)
            seen(mean.squeeze(3), covariance)
            matrix = _inverse_root(covariance, eps)
        else:
            mean, covariance = (part.to(x.dtype) for part in known)
            centred = x - mean.unsqueeze(-1)
            matrix = _inverse_root(covariance.movedim(-1, 0), eps).unsqueeze(0)
        if weight is not None:
            matrix = weight.to(x.dtype).movedim(-1, 0) @ matrix
        # [sets, channels, blades, items]
        out = (matrix @ centred.transpose(1, 2)).transpose(1, 2)
        if bias is not None:
            # cliffordlayers reads the memory of `[blades, channels]` as `[channels, blades]`, and so do its state dicts.
            own = bias.to(x.dtype).reshape(bias.shape[1], bias.shape[0])
            out = out + own.T.unsqueeze(-1)
        return out.to(dtype)


def _statistics(x: Tensor, over: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Means ``[sets, blades, channels, 1]``, covariances ``[sets, channels, blades, blades]``, and the centred input."""
    mean = x.mean(over, keepdim=True)
    centred = x - mean
    rows = centred.transpose(1, 2)
    covariance = rows @ rows.transpose(-1, -2)
    if 0 in over:
        covariance = covariance.sum(0, keepdim=True)
    return mean, covariance / (x.shape[3] * (x.shape[0] if 0 in over else 1)), centred


def _inverse_root(covariance: Tensor, eps: float) -> Tensor:
    """The inverse of the upper factor of covariances ``[..., blades, blades]``.

    The upper factor is what cliffordlayers solves with. The covariance of the result is not the identity: that would need the lower one.
    Where there is no factor, as of NaN, the result is NaN: an error would wait for the GPU, and could not be captured.
    """
    blades = covariance.shape[-1]
    identity = torch.eye(blades, dtype=covariance.dtype, device=covariance.device)
    largest = covariance.amax((-1, -2), keepdim=True)
    # Multivectors that are all equal have no covariance, and become 0.
    least = torch.finfo(covariance.dtype).tiny / eps if eps else 0.0
    regular = covariance + eps * largest.clamp_min(least) * identity
    lower, failures = torch.linalg.cholesky_ex(regular)
    upper = torch.where((failures == 0)[..., None, None], lower, torch.nan).mT
    return torch.linalg.solve_triangular(upper, identity.expand_as(upper), upper=True)
