"""Products without parameters, as modules."""

from __future__ import annotations

from torch import Tensor

from .. import functional as F
from .._derived.choices import CHOICES
from ..algebra import grades_of
from ._module import AlgebraLike, CliffordModule, Grades, check_choice, joined

KINDS = CHOICES["kind"]
"""Names of products."""


class Product(CliffordModule):
    """A product of two multivectors, channel by channel.

    ``x`` and ``y`` are ``[blades, *batch, channels]`` of the grades ``left`` and ``right`` (all by
    default); the output holds the blades that these can reach.

    Args:
        algebra: such as ``flashcliff.Algebra(3, 0, 0)``.
        kind: ``"geometric"``, ``"exterior"``, ``"regressive"``, ``"left_contraction"``,
            ``"right_contraction"``, ``"scalar"`` or ``"commutator"``.
        left: the grades of ``x``.
        right: the grades of ``y``.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> v = torch.randn(3, 32, 4)  # vectors
        >>> layer = nn.Product((3, 0, 0), "exterior", left=[1], right=[1])
        >>> layer(v, v).shape
        torch.Size([3, 32, 4])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        kind: str = "geometric",
        *,
        left: Grades | None = None,
        right: Grades | None = None,
    ) -> None:
        super().__init__(algebra)
        self.kind = check_choice("kind", kind, KINDS)
        self.left = grades_of(self.algebra, "left", left)
        self.right = grades_of(self.algebra, "right", right)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of ``x`` and ``y`` ``[blades of left or right, *batch, channels]``:
        ``[reachable blades, *batch, channels]``.
        """
        return F.product(x, y, self._algebra, self.kind, left=self.left, right=self.right)

    def extra_repr(self) -> str:
        return joined(f"{self.algebra!r}, {self.kind!r}", *_grades(self.left, self.right))


class Sandwich(CliffordModule):
    """``x y reverse(x)``: for a unit rotor ``x`` its action on ``y``; for an odd versor the action
    with the odd grades of ``y`` negated (:func:`flashcliff.functional.sandwich`).

    ``x`` and ``y`` are ``[blades, *batch, channels]`` of the grades ``left`` and ``right``.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.Sandwich((3, 0, 0), left=[0, 2], right=[1])
        >>> layer(torch.randn(4, 32, 4), torch.randn(3, 32, 4)).shape
        torch.Size([3, 32, 4])
    """

    def __init__(
        self, algebra: AlgebraLike, *, left: Grades | None = None, right: Grades | None = None
    ) -> None:
        super().__init__(algebra)
        self.left = grades_of(self.algebra, "left", left)
        self.right = grades_of(self.algebra, "right", right)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The sandwich of ``x`` and ``y`` ``[blades of left or right, *batch, channels]``:
        ``[reachable blades, *batch, channels]``.
        """
        return F.sandwich(x, y, self._algebra, left=self.left, right=self.right)

    def extra_repr(self) -> str:
        return joined(f"{self.algebra!r}", *_grades(self.left, self.right))


def _grades(left: tuple[int, ...] | None, right: tuple[int, ...] | None) -> list[str]:
    named = {"left": left, "right": right}
    return [f"{name}={grades}" for name, grades in named.items() if grades is not None]
