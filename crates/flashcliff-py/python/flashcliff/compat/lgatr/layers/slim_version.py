"""Differences between the versions of L-GATr-slim, and helpers of its parts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....nn.transformer.described import Maybe
from ..config import activation

__all__ = ["V1", "V2", "VectorsScalars", "Version", "inward", "minkowski", "outward"]

VectorsScalars = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Version:
    """Choices in which lgatr 1.4 and 2.0 differ."""

    affine: bool = True
    """Whether the norms of blocks have gains."""
    shared_norm: bool = False
    """Whether a block has one norm, which it calls before each of its parts."""
    attention_bias: bool = False
    """Whether queries, keys and values have biases."""
    gate_scale: float = 0.5
    """The factor of the inner products that gate vectors."""
    exact_gelu: bool = False
    """Whether GELU is the exact one."""
    empty_scalars: bool = False
    """Whether there is a linear map of scalars from or to no channels."""
    metric: bool = False
    """Whether attention has a buffer ``metric``, which nothing here reads."""

    def activation(self, nonlinearity: str) -> str:
        """The name here of a nonlinearity."""
        exact = self.exact_gelu and nonlinearity == "gelu"
        return nonlinearity if exact else activation(nonlinearity)


V2 = Version()
V1 = Version(
    affine=False,
    shared_norm=True,
    attention_bias=True,
    gate_scale=1.0,
    exact_gelu=True,
    empty_scalars=True,
    metric=True,
)


def minkowski(squares: Tensor) -> Tensor:
    """``t - x - y - z`` of products of components ``[*batch, 4, channels]``: ``[*batch, channels]``."""
    return squares[..., 0, :] - squares[..., 1:, :].sum(-2)


def inward(pair: VectorsScalars) -> tuple[Tensor, Tensor | None]:
    """Vectors ``[*batch, 4, channels]`` with their components first, as networks take them, and scalars."""
    return pair[0].movedim(-2, 0), pair[1]


def outward(pair: Maybe) -> VectorsScalars:
    """The inverse of :func:`inward`."""
    vectors, scalars = pair
    assert vectors is not None
    if scalars is None:
        scalars = vectors.new_empty(*vectors.shape[1:-1], 0)
    return vectors.movedim(0, -2), scalars
