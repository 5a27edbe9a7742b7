"""Blocks that turn quaternions, for the kernels of rotation layers."""

from __future__ import annotations

import torch
from torch import Tensor

_EPS = 1e-4
"""Added to the squared length of a quaternion, as in cliffordlayers."""


def turning_blocks(quaternion: Tensor, scale: Tensor) -> Tensor:
    """Scaled rotations of space, one for each pair of channels and place of the kernel.

    ``scale R(n)``, where ``n = w / sqrt(|w|^2 + 1e-4)`` and ``R(n)`` is the rotation ``v -> n v conj(n)`` of vectors.

    Args:
        quaternion: ``[4, a, b, *kernel]``, the real part first.
        scale: ``[a, b, *kernel]``.

    Returns:
        ``[3, 3, a, b, *kernel]``: rows are outputs, columns inputs.
    """
    real, i, j, k = quaternion / (quaternion.square().sum(0) + _EPS).sqrt()
    rows = (
        (1 - 2 * (j * j + k * k), 2 * (i * j - real * k), 2 * (i * k + real * j)),
        (2 * (i * j + real * k), 1 - 2 * (i * i + k * k), 2 * (j * k - real * i)),
        (2 * (i * k - real * j), 2 * (j * k + real * i), 1 - 2 * (i * i + j * j)),
    )
    return torch.stack([torch.stack(row) for row in rows]) * scale


def rotation_blocks(w: Tensor) -> Tensor:
    """The blocks of the rotation variant over Cl(0, 2), ``[4, 4, a, b, *kernel]``.

    The scalar of the result is that of the product with the quaternion, its other three blades are the turned blades of the input.

    Args:
        w: ``[6, a, b, *kernel]``: the quaternion, the scale, and what the scalar of the input adds to the other blades, which is 0.
    """
    quaternion, scale, zero = w[:4], w[4], w[5]
    first = torch.stack([w[0], -w[1], -w[2], -w[3]])
    turned = turning_blocks(quaternion, scale)
    below = torch.cat([zero.expand(3, 1, *zero.shape), turned], dim=1)
    return torch.cat([first.unsqueeze(0), below])
