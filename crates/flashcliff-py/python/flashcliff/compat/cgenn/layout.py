"""CGENN's order of axes and blades, and ours."""

from __future__ import annotations

from typing import TypeGuard

from torch import Tensor

from ..._ops import remedies
from ...algebra import Algebra
from .algebra import CliffordAlgebra

AlgebraLike = CliffordAlgebra | Algebra


def from_cgenn(x: Tensor, algebra: AlgebraLike | None = None, *, signs: bool = True) -> Tensor:
    """``[batch, channels, ..., blades]`` to ``[blades, batch, ..., channels]``, contiguous.

    Args:
        x: multivectors.
        algebra: the algebra of ``x``. If the vectors of its metric are in another order than flashcliff's, the blades
            come in flashcliff's order and with its signs. Otherwise, and without it, they stay as they are.
        signs: whether the blades get flashcliff's signs. Functions that multiply each blade by a number that depends
            on squares alone do not need them.
    """
    remedies.check_dense("x", x)
    if x.dim() < 3:
        raise ValueError(f"x: expected [batch, channels, ..., blades], got {list(x.shape)}")
    ours = x.movedim(-1, 0).movedim(2, -1)
    return algebra._enter(ours, signs) if reorders(algebra) else ours.contiguous()


def to_cgenn(x: Tensor, algebra: AlgebraLike | None = None, *, signs: bool = True) -> Tensor:
    """``[blades, batch, ..., channels]`` to ``[batch, channels, ..., blades]``, a view.

    Args:
        x: multivectors.
        algebra: the algebra of the result. If the vectors of its metric are in another order than flashcliff's, the
            blades come in the metric's order and with its signs; the result is a view of a copy then.
        signs: whether the blades get the metric's signs, as for :func:`from_cgenn`.
    """
    remedies.check_dense("x", x)
    if x.dim() < 3:
        raise ValueError(f"x: expected [blades, batch, ..., channels], got {list(x.shape)}")
    theirs = algebra._leave(x, signs) if reorders(algebra) else x
    return theirs.movedim(-1, 2).movedim(0, -1)


def reorders(algebra: AlgebraLike | None) -> TypeGuard[CliffordAlgebra]:
    """Whether the blades of an algebra are in another order than flashcliff's."""
    return isinstance(algebra, CliffordAlgebra) and algebra.reorders_blades
