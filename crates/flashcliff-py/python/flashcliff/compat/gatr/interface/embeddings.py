"""Points, planes, motions and rays as multivectors of Cl(3,0,1), and back.

Multivectors are ``[..., 16]``: 1, e0, e1, e2, e3, e01, e02, e03, e12, e13, e23, e012, e013, e023, e123, e0123. A motion
``u`` takes a multivector ``x`` to ``u x reverse(u)``, a reflection in a plane ``u`` to ``u x u`` up to the sign of the
grade.

Source: Dorst, A Guided Tour to the Plane-Based Geometric Algebra PGA; GATr (arXiv 2305.18415, section 3).
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from ...._ops import remedies
from ..utils import GATrDeprecationWarning

__all__ = [
    "embed_oriented_plane",
    "embed_pluecker_ray",
    "embed_point",
    "embed_pseudoscalar",
    "embed_reflection",
    "embed_rotation",
    "embed_scalar",
    "embed_translation",
    "extract_oriented_plane",
    "extract_pluecker_ray",
    "extract_point",
    "extract_point_embedding_reg",
    "extract_pseudoscalar",
    "extract_reflection",
    "extract_rotation",
    "extract_scalar",
    "extract_translation",
]


def embed_scalar(scalars: Tensor) -> Tensor:
    """Scalars ``[..., 1]`` to multivectors ``[..., 16]``."""
    return F.pad(checked("scalars", scalars, 1), (0, 15))


def extract_scalar(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their scalars ``[..., 1]``."""
    return checked("multivectors", multivectors, 16)[..., :1]


def embed_pseudoscalar(pseudoscalars: Tensor) -> Tensor:
    """Pseudoscalars ``[..., 1]`` to multivectors ``[..., 16]``."""
    return F.pad(checked("pseudoscalars", pseudoscalars, 1), (15, 0))


def extract_pseudoscalar(multivectors: Tensor) -> Tensor:
    """Multivectors ``[..., 16]`` to their pseudoscalars ``[..., 1]``, whose sign reflections change."""
    return checked("multivectors", multivectors, 16)[..., 15:]


def embed_point(coordinates: Tensor) -> Tensor:
    """Points ``(x, y, z)`` ``[..., 3]`` to multivectors ``[..., 16]``: ``e123 - z e012 + y e013 - x e023``."""
    x, y, z = checked("coordinates", coordinates, 3).unbind(-1)
    return F.pad(torch.stack((-z, y, -x, torch.ones_like(x)), dim=-1), (11, 1))


def extract_point(
    multivector: Tensor, divide_by_embedding_dim: bool = True, threshold: float = 1e-3
) -> Tensor:
    """The point ``[..., 3]`` of the trivector of a multivector ``[..., 16]``.

    Args:
        multivector: the multivector.
        divide_by_embedding_dim: whether the coordinates are divided by the weight, the part at ``e123``. Without it
            the function does not commute with translations.
        threshold: takes the place of a weight whose absolute value is not larger.
    """
    z, y, x, weight = checked("multivector", multivector, 16)[..., 11:15].unbind(-1)
    coordinates = torch.stack((-x, y, -z), dim=-1)
    return _divided(coordinates, weight, threshold) if divide_by_embedding_dim else coordinates


def extract_point_embedding_reg(multivector: Tensor) -> Tensor:
    """The absolute weight of the point of a multivector ``[..., 16]`` minus 1, ``[..., 1]``."""
    return checked("multivector", multivector, 16)[..., 14:15].abs() - 1


def embed_oriented_plane(normal: Tensor, position: Tensor) -> Tensor:
    """Planes with normals ``n`` through points ``p``, ``[..., 3]`` each, to ``n - (n . p) e0``, ``[..., 16]``."""
    checked("normal", normal, 3)
    offset = -(normal * checked("position", position, 3)).sum(-1, keepdim=True)
    normal = normal.expand(*offset.shape[:-1], 3)
    return F.pad(torch.cat((offset, normal), dim=-1), (1, 11))


def extract_oriented_plane(multivector: Tensor) -> Tensor:
    """The normal ``[..., 3]`` of the plane of a multivector ``[..., 16]``."""
    return checked("multivector", multivector, 16)[..., 2:5]


def embed_reflection(normal: Tensor, position: Tensor) -> Tensor:
    """Reflections in planes with normals ``[..., 3]`` through points ``[..., 3]``, as the planes ``[..., 16]``."""
    return embed_oriented_plane(normal, position)


def extract_reflection(multivector: Tensor) -> Tensor:
    """The normal ``[..., 3]`` of the plane of a reflection ``[..., 16]``."""
    return extract_oriented_plane(multivector)


def embed_translation(translation_vector: Tensor) -> Tensor:
    """Translations by ``t`` ``[..., 3]`` to motors ``1 - e0 t / 2``, ``[..., 16]``."""
    half = -0.5 * checked("translation_vector", translation_vector, 3)
    return F.pad(half, (5, 8)) + _one(half)


def extract_translation(
    multivector: Tensor, divide_by_embedding_dim: bool = False, threshold: float = 1e-3
) -> Tensor:
    """The translation ``[..., 3]`` of a motor ``[..., 16]`` without rotation. For others it does not commute with
    rotations, of which a ``GATrDeprecationWarning`` tells, as in GATr.

    Args:
        multivector: the motor.
        divide_by_embedding_dim: whether the vector is divided by the scalar.
        threshold: takes the place of a scalar whose absolute value is not larger.
    """
    vector = -2 * checked("multivector", multivector, 16)[..., 5:8]
    warnings.warn(
        "extract_translation commutes with rotations only where the motor has none: "
        "extract_oriented_plane extracts a vector that rotates with its input",
        GATrDeprecationWarning,
        stacklevel=2,
    )
    return _divided(vector, multivector[..., 0], threshold) if divide_by_embedding_dim else vector


def embed_rotation(quaternion: Tensor) -> Tensor:
    """Unit quaternions ``(i, j, k, w)`` ``[..., 4]``, with ``i j k = -1``, to motors ``w - k e12 + j e13 - i e23``,
    ``[..., 16]``."""
    i, j, k, w = checked("quaternion", quaternion, 4).unbind(-1)
    bivector = F.pad(torch.stack((-k, j, -i), dim=-1), (8, 5))
    return bivector + F.pad(w[..., None], (0, 15))


def extract_rotation(multivector: Tensor, normalize: bool = False) -> Tensor:
    """The quaternion ``(i, j, k, w)`` ``[..., 4]`` of a motor ``[..., 16]``; a unit one with ``normalize``."""
    checked("multivector", multivector, 16)
    w, (k, j, i) = multivector[..., 0], multivector[..., 8:11].unbind(-1)
    quaternion = torch.stack((-i, j, -k, w), dim=-1)
    if normalize:
        return quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    return quaternion


def embed_pluecker_ray(pluecker_ray: Tensor) -> Tensor:
    """Rays in direction ``d`` through points ``o``, as ``(d, o x d)`` ``[..., 6]``, to bivectors ``[..., 16]``."""
    x, y, z, *moment = checked("pluecker_ray", pluecker_ray, 6).unbind(-1)
    return F.pad(torch.stack((*moment, z, -y, x), dim=-1), (5, 5))


def extract_pluecker_ray(multivector: Tensor) -> Tensor:
    """The ray ``(d, o x d)`` ``[..., 6]`` of the bivector of a multivector ``[..., 16]``."""
    *moment, z, y, x = checked("multivector", multivector, 16)[..., 5:11].unbind(-1)
    return torch.stack((x, -y, z, *moment), dim=-1)


def checked(name: str, x: Tensor, size: int) -> Tensor:
    """A tensor whose last axis has a length."""
    remedies.check_tensor(name, x)
    if x.dim() < 1 or x.shape[-1] != size:
        raise ValueError(f"{name}: expected [..., {size}], got {list(x.shape)}")
    return x


def _one(like: Tensor) -> Tensor:
    one = like.new_zeros(16)
    one[0] = 1
    return one


def _divided(vector: Tensor, weight: Tensor, threshold: float) -> Tensor:
    weight = torch.where(weight.abs() > threshold, weight, threshold)
    return vector / weight[..., None]
