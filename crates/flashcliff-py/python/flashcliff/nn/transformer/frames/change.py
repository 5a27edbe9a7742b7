"""Vectors in the frames of their items, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from ....algebra import as_algebra
from ..geometry import Geometry, GeometryLike, check_floating, constant, without_autocast

__all__ = ["check_frames", "check_vectors", "from_frames", "to_frames", "vectors_of"]


def vectors_of(geometry: GeometryLike) -> Geometry:
    """The geometry of vectors and scalars over an algebra without null vectors."""
    if not isinstance(geometry, Geometry):
        geometry = Geometry(as_algebra(geometry), product=False, vectors=True)
    if not geometry.vectors or geometry.head_norm or geometry.algebra.signature[2]:
        raise ValueError(
            "geometry: expected an algebra without null vectors, such as Algebra(1, 3, 0), or its geometry with vectors=True and "
            f"head_norm=False, got {geometry!r}"
        )
    return geometry


def to_frames(vectors: Tensor, frames: Tensor) -> Tensor:
    """Vectors in the frames of their items, ``y_i = sum of L[i, j] x_j``.

    Args:
        vectors: ``[dim, *batch, items, channels]``.
        frames: the matrices ``L``, ``[*batch, items, dim, dim]``.

    Computed in the type of the vectors, also under autocast.
    """
    check_frames(frames, vectors)
    # Components of a boosted vector may be small differences of large numbers.
    with without_autocast(vectors):
        moved = torch.matmul(frames.to(vectors.dtype), vectors.movedim(0, -2))
    return moved.movedim(-2, 0)


def from_frames(vectors: Tensor, frames: Tensor, geometry: GeometryLike) -> Tensor:
    """Vectors that are in the frames of their items, in the frame of all: :func:`to_frames` by ``eta L^T eta``, the inverse of an
    ``L`` that preserves the metric ``eta`` of an algebra.

    Args:
        vectors: ``[dim, *batch, items, channels]``.
        frames: ``[*batch, items, dim, dim]``.
        geometry: an algebra without null vectors, such as ``Algebra(1, 3, 0)``.
    """
    geometry = vectors_of(geometry)
    check_frames(frames, vectors)
    norms = constant(tuple(map(float, geometry.norms)), frames)
    return to_frames(vectors, frames.transpose(-1, -2) * norms * norms.unsqueeze(-1))


def check_vectors(name: str, x: Tensor, geometry: Geometry, channels: int) -> None:
    """Checks that a tensor is ``[dim, *batch, items, channels]``."""
    check_floating(name, x)
    dim = geometry.algebra.dim
    if x.dim() < 3 or x.shape[0] != dim or x.shape[-1] != channels:
        raise ValueError(
            f"{name}: expected [{dim}, *batch, items, {channels}], got {list(x.shape)}"
        )


def check_frames(frames: Tensor, vectors: Tensor) -> None:
    """Checks that frames are the frames of the items of vectors ``[dim, *batch, items, channels]``."""
    check_floating("frames", frames)
    check_floating("vectors", vectors)
    dim, *batch, _ = vectors.shape
    if frames.shape != (*batch, dim, dim):
        raise ValueError(f"frames: expected {[*batch, dim, dim]}, got {list(frames.shape)}")
