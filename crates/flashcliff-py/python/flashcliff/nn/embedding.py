"""Embeds vectors in multivectors, and points in multivector channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from .._ops import checks, remedies
from ..algebra import Algebra, as_algebra
from ._module import AlgebraLike, CliffordModule, check_features, check_tensor
from .transformer import path
from .transformer.described import MessageDescription, Multivectors, Undescribed


def embed_grade(x: Tensor, grade: int, algebra: AlgebraLike) -> Tensor:
    """The blades of one grade as full multivectors; all other blades are zero.

    Args:
        x: ``[blades of the grade, *batch, channels]``.
        grade: the grade.
        algebra: the algebra.

    Returns:
        ``[blades, *batch, channels]``.
    """
    algebra = as_algebra(algebra)
    start, end = _blade_range(algebra, grade)
    check_tensor("x", x)
    if x.dim() < 1 or x.size(0) != end - start:
        raise ValueError(
            f"x: expected [{end - start}, ...], the blades of grade {grade}, got {list(x.shape)}"
        )
    before = x.new_zeros(start, *x.shape[1:])
    after = x.new_zeros(algebra.blade_count - end, *x.shape[1:])
    return torch.cat([before, x, after])


def select_grade(x: Tensor, grade: int, algebra: AlgebraLike) -> Tensor:
    """The blades of one grade of full multivectors ``[blades, *batch, channels]``; a view."""
    start, end = _blade_range(as_algebra(algebra), grade)
    return x[start:end]


def embed_points(points: Tensor, algebra: AlgebraLike) -> Tensor:
    """Embeds each point as a vector in its own channel; all other grades are zero.

    Args:
        points: ``[*batch, points, dim]``.
        algebra: the algebra, of ``dim`` dimensions.

    Returns:
        ``[blades, *batch, points]``.
    """
    algebra = as_algebra(algebra)
    return embed_grade(_vectors(points, algebra), 1, algebra)


@path.stands_for
class PointEmbedding(CliffordModule):
    """:class:`MVLinear` with one matrix for all grades, on points embedded as vectors.

    Function and parameters are the same as for ``MVLinear(..., per_grade=False)`` after
    :func:`embed_points`; only the vector blades are multiplied.

    Shapes:
        - input ``[*batch, in_features, dim]``: points
        - output ``[blades, *batch, out_features]``
        - ``weight`` ``[out_features, in_features]``; starts normal, std ``1 / sqrt(in_features)``
        - ``bias`` ``[1, out_features, 1]``, on the scalar blade; starts at 0

    Source: the first layer of CGENN's models, ``MVLinear(..., subspaces=False)`` after
    ``embed_grade(points, 1)``.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.PointEmbedding((3, 0, 0), 5, 16)
        >>> layer(torch.randn(32, 5, 3)).shape
        torch.Size([8, 32, 16])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.in_features = check_features("in_features", in_features)
        self.out_features = check_features("out_features", out_features)
        bias = checks.flag("bias", bias)
        shape = (out_features, in_features)
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(torch.empty(1, out_features, 1, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, points: Tensor) -> Tensor:
        """Points ``[*batch, in_features, dim]`` to multivectors ``[blades, *batch, out_features]``."""
        vectors = _vectors(points, self.algebra)
        if vectors.shape[-1] != self.in_features:
            raise ValueError(
                f"points: expected [..., {self.in_features}, {self.algebra.dim}], got {list(points.shape)}"
            )
        own = self.weight.dtype
        # Autocast leaves float64 alone.
        is_cast = torch.float64 not in (vectors.dtype, own) and torch.is_autocast_enabled(vectors.device.type)
        if vectors.dtype != own and not is_cast:
            raise TypeError(
                f"points: expected {own}, as `weight` has, got {vectors.dtype}; call `points.to({own})`"
            )
        vectors = torch.nn.functional.linear(vectors, self.weight)
        scalar = vectors.new_zeros(1, *vectors.shape[1:])
        if self.bias is not None:
            scalar = scalar + self.bias.view(-1).to(vectors.dtype)
        rest = self.algebra.blade_count - 1 - vectors.size(0)
        return torch.cat([scalar, vectors, vectors.new_zeros(rest, *vectors.shape[1:])])

    def describe_on_graph(self, network: MessageDescription, points: Multivectors) -> Multivectors:
        """Adds the embedding of points ``[rows, points, dim]`` to a network."""
        network.reads(self, "in_features", "out_features", "_algebra")
        if (points.channels, points.blades) != (self.algebra.dim, self.in_features):
            raise Undescribed("an embedding has another number of points than its input")
        x = network.points(points)
        bias = network.optional(self, "bias", (1, self.out_features, 1), (self.out_features,))
        weight = network.parameter(self, "weight", (self.out_features, self.in_features))
        of = self._algebra, x, (weight, bias), self.out_features
        return network.extended(network.linear(*of, grades=(0, 1)), self._algebra.blade_count)

    def extra_repr(self) -> str:
        return (
            f"{self.algebra!r}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


def _vectors(points: Tensor, algebra: Algebra) -> Tensor:
    """Points ``[*batch, points, dim]`` as ``[dim, *batch, points]``."""
    dim = algebra.dim
    remedies.check_dense("points", points)
    if points.dim() < 2 or points.size(-1) != dim:
        raise ValueError(f"points: expected [..., points, {dim}], got {list(points.shape)}")
    return points.movedim(-1, 0)


def _blade_range(algebra: Algebra, grade: int) -> tuple[int, int]:
    dim = algebra.dim
    grade = checks.integer("grade", grade)
    if not 0 <= grade < algebra.grade_count:
        raise ValueError(f"grade: expected 0 to {dim}, got {grade}")
    start = sum(math.comb(dim, g) for g in range(grade))
    return start, start + math.comb(dim, grade)
