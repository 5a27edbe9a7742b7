"""Vectors, scalars and other parts of multivectors of Cl(1,3), and reference multivectors.

Multivectors are ``[..., 16]``: scalar, vector ``(t, x, y, z)``, bivector ``(tx, ty, tz, xy, xz, yz)``, axial vector,
pseudoscalar. The axial vector stands in the order ``(z, y, x, t)``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "embed_axialvector",
    "embed_bivector",
    "embed_pseudoscalar",
    "embed_scalar",
    "embed_vector",
    "extract_axialvector",
    "extract_bivector",
    "extract_pseudoscalar",
    "extract_scalar",
    "extract_vector",
    "get_num_spurions",
    "get_spurions",
]

BEAMS = ("xyplane", "lightlike", "spacelike", "timelike", None)


def embed_scalar(scalars: Tensor) -> Tensor:
    """Scalars ``[..., 1]`` to multivectors ``[..., 16]``."""
    return _embed("scalars", scalars, 0, 1)


def extract_scalar(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their scalars ``[..., 1]``."""
    return _extract(multivectors, 0, 1)


def embed_vector(vectors: Tensor) -> Tensor:
    """Vectors ``[..., 4]``, as ``(t, x, y, z)``, to multivectors ``[..., 16]``."""
    return _embed("vectors", vectors, 1, 4)


def extract_vector(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their vectors ``[..., 4]``."""
    return _extract(multivectors, 1, 4)


def embed_bivector(bivectors: Tensor) -> Tensor:
    """Bivectors ``[..., 6]``, as ``(tx, ty, tz, xy, xz, yz)``, to multivectors ``[..., 16]``."""
    return _embed("bivectors", bivectors, 5, 6)


def extract_bivector(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their bivectors ``[..., 6]``."""
    return _extract(multivectors, 5, 6)


def embed_axialvector(axialvectors: Tensor) -> Tensor:
    """Axial vectors ``[..., 4]``, as ``(t, x, y, z)``, to multivectors ``[..., 16]``."""
    return _embed("axialvectors", axialvectors.flip(-1), 11, 4)


def extract_axialvector(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their axial vectors ``[..., 4]``, as ``(t, x, y, z)``."""
    return _extract(multivectors, 11, 4).flip(-1)


def embed_pseudoscalar(pseudoscalars: Tensor) -> Tensor:
    """Pseudoscalars ``[..., 1]`` to multivectors ``[..., 16]``."""
    return _embed("pseudoscalars", pseudoscalars, 15, 1)


def extract_pseudoscalar(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their pseudoscalars ``[..., 1]``."""
    return _extract(multivectors, 15, 1)


def get_num_spurions(
    beam_spurion: str | None = "xyplane", add_time_spurion: bool = True, beam_mirror: bool = True
) -> int:
    """The number of multivectors that :func:`get_spurions` returns."""
    return len(get_spurions(beam_spurion, add_time_spurion, beam_mirror))


def get_spurions(
    beam_spurion: str | None = "xyplane",
    add_time_spurion: bool = True,
    beam_mirror: bool = True,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Reference multivectors that break the Lorentz group down to the symmetry of a collider, ``[count, 16]``.

    Args:
        beam_spurion: the direction of the beam: ``"lightlike"`` ``(1, 0, 0, 1)``, ``"timelike"`` ``(sqrt 2, 0, 0,
            1)``, ``"spacelike"`` ``(0, 0, 0, 1)``, the plane across it, ``"xyplane"``, or ``None``.
        add_time_spurion: whether the direction of time ``(1, 0, 0, 0)`` follows.
        beam_mirror: whether a beam also has its mirror image, with ``-1`` for ``1`` at the end.
        device: the device.
        dtype: the element type.
    """
    if beam_spurion not in BEAMS:
        raise ValueError(f"beam_spurion: expected one of {BEAMS}, got {beam_spurion!r}")
    rows = []
    if beam_spurion == "xyplane":
        rows.append([0.0] * 8 + [1.0])
    elif beam_spurion is not None:
        time = {"lightlike": 1.0, "timelike": 2**0.5, "spacelike": 0.0}[beam_spurion]
        rows += [[0.0, time, 0.0, 0.0, z] for z in ((1.0, -1.0) if beam_mirror else (1.0,))]
    if add_time_spurion:
        rows.append([0.0, 1.0])
    padded = [row + [0.0] * (16 - len(row)) for row in rows]
    return torch.tensor(padded, device=device, dtype=dtype).view(-1, 16)


def _embed(name: str, x: Tensor, first: int, size: int) -> Tensor:
    if x.dim() < 1 or x.shape[-1] != size:
        raise ValueError(f"{name}: expected [..., {size}], got {list(x.shape)}")
    return F.pad(x, (first, 16 - first - size))


def _extract(multivectors: Tensor, first: int, size: int) -> Tensor:
    if multivectors.dim() < 1 or multivectors.shape[-1] != 16:
        raise ValueError(f"multivectors: expected [..., 16], got {list(multivectors.shape)}")
    return multivectors[..., first : first + size]
