"""Positions and orientations of rigid bodies as multivectors of Cl(3,0,1), and back."""

from __future__ import annotations

import torch
from torch import Tensor

from .... import functional
from ..config import ALGEBRA
from .embeddings import (
    checked,
    embed_oriented_plane,
    embed_point,
    extract_oriented_plane,
    extract_point,
)

__all__ = [
    "embed_3d_object",
    "embed_3d_object_two_vec",
    "extract_3d_object",
    "extract_3d_object_two_vec",
]


def embed_3d_object(position: Tensor, orientation: Tensor, explicit_point: bool = False) -> Tensor:
    """A body as three planes through its position, across its axes.

    Args:
        position: ``[..., 1, 3]``.
        orientation: quaternions ``(i, j, k, w)`` ``[..., 1, 4]``, with ``i j k = -1``.
        explicit_point: whether the position follows as a point.

    Returns:
        ``[..., 3, 16]``, or with the point ``[..., 4, 16]``.
    """
    _one_row("position", position, 3)
    _one_row("orientation", orientation, 4)
    planes = embed_oriented_plane(_axes(orientation[..., 0, :]), position)
    return torch.cat((planes, embed_point(position)), dim=-2) if explicit_point else planes


def extract_3d_object(
    multivector: Tensor, normalize_quaternion: bool = True, sign_reference: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The position ``[..., 1, 3]`` and the orientation ``[..., 1, 4]`` of a body that :func:`embed_3d_object` embedded.

    Args:
        multivector: ``[..., 3, 16]`` or ``[..., 4, 16]``.
        normalize_quaternion: whether quaternions are divided by their norms. If not they are multiplied by four times
            their real part, as in GATr, which is 0 at half a turn.
        sign_reference: quaternions ``[..., 1, 4]``; the result has the sign for which their dot product is not negative.
    """
    checked("multivector", multivector, 16)
    if multivector.dim() < 2 or multivector.shape[-2] not in (3, 4):
        raise ValueError(f"multivector: expected [..., 3 or 4, 16], got {list(multivector.shape)}")
    if multivector.shape[-2] == 4:
        place = multivector[..., 3:, :]
    else:
        # The planes meet in the position.
        a, b, c = (multivector[..., i, :].movedim(-1, 0).unsqueeze(-1) for i in range(3))
        line = functional.product(a, b, ALGEBRA, "exterior")
        place = functional.product(line, c, ALGEBRA, "exterior").squeeze(-1).movedim(0, -1)
        place = place.unsqueeze(-2)
    products = _products(extract_oriented_plane(multivector[..., :3, :]))
    quaternion = products[..., 3:, :]
    if normalize_quaternion:
        quaternion = _well_conditioned(products)
        quaternion = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    if sign_reference is not None:
        product = (checked("sign_reference", sign_reference, 4) * quaternion).sum(-1, keepdim=True)
        # At right angles both signs are as good, and neither is 0.
        quaternion = torch.where(product < 0, -quaternion, quaternion)
    return extract_point(place), quaternion


def embed_3d_object_two_vec(position: Tensor, orientation: Tensor) -> Tensor:
    """A body as a point and three planes across two vectors and their cross product.

    Args:
        position: ``[..., 1, 3]``.
        orientation: two vectors one after the other, ``[..., 1, 6]``.

    Returns:
        ``[..., 4, 16]``, the point first.
    """
    _one_row("position", position, 3)
    _one_row("orientation", orientation, 6)
    two = orientation.unflatten(-1, (2, 3)).squeeze(-3)
    third = torch.linalg.cross(two[..., :1, :], two[..., 1:, :])
    planes = embed_oriented_plane(torch.cat((two, third), dim=-2), position)
    return torch.cat((embed_point(position), planes), dim=-2)


def extract_3d_object_two_vec(multivector: Tensor) -> tuple[Tensor, Tensor]:
    """The position ``[..., 1, 3]`` and the two vectors ``[..., 1, 6]`` of a body that :func:`embed_3d_object_two_vec`
    embedded, ``[..., 4, 16]``."""
    checked("multivector", multivector, 16)
    if multivector.dim() < 2 or multivector.shape[-2] != 4:
        raise ValueError(f"multivector: expected [..., 4, 16], got {list(multivector.shape)}")
    two = extract_oriented_plane(multivector[..., 1:3, :])
    return extract_point(multivector[..., :1, :]), two.flatten(-2).unsqueeze(-2)


def _products(rows: Tensor) -> Tensor:
    """Four times the products of all components of a unit quaternion ``(i, j, k, w)``, ``[..., 4, 4]``.

    Args:
        rows: the images of the axes under its rotation, ``[..., 3, 3]``.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(-1) for row in rows.unbind(-2))
    table = [
        (1 + xx - yy - zz, xy + yx, xz + zx, yz - zy),
        (xy + yx, 1 - xx + yy - zz, yz + zy, zx - xz),
        (xz + zx, yz + zy, 1 - xx - yy + zz, xy - yx),
        (yz - zy, zx - xz, xy - yx, 1 + rows.diagonal(dim1=-2, dim2=-1).sum(-1)),
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in table], dim=-2)


def _well_conditioned(products: Tensor) -> Tensor:
    """The row of a component that is not small, ``[..., 1, 4]``: that of the real part if its square is 1/4 or more, and
    that of the largest component otherwise. The real part of the result is not negative."""
    squares = products.diagonal(dim1=-2, dim2=-1)
    index = torch.where(squares[..., 3] >= 1, 3, squares.argmax(-1))
    row = products.gather(-2, index[..., None, None].expand(*index.shape, 1, 4))
    return torch.where(row[..., 3:] < 0, -row, row)


def _axes(quaternion: Tensor) -> Tensor:
    """The images of the three axes under a rotation ``[..., 4]``, as rows ``[..., 3, 3]``, times its squared norm."""
    vector, w = quaternion[..., :3], quaternion[..., 3:]
    square = (w * w - (vector * vector).sum(-1, keepdim=True))[..., None]
    basis = torch.eye(3, dtype=quaternion.dtype, device=quaternion.device).expand(
        *w.shape[:-1], 3, 3
    )
    turned = torch.linalg.cross(vector[..., None, :].expand_as(basis), basis)
    outer = vector[..., :, None] * vector[..., None, :]
    return square * basis + 2 * outer + 2 * w[..., None] * turned


def _one_row(name: str, x: Tensor, size: int) -> None:
    checked(name, x, size)
    if x.dim() < 2 or x.shape[-2] != 1:
        raise ValueError(f"{name}: expected [..., 1, {size}], got {list(x.shape)}")
