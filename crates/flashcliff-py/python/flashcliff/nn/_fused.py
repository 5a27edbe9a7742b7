"""The options that both gated products share."""

from __future__ import annotations

from torch.nn import Parameter

from .._ops import checks, surprises
from ..algebra import grades_of
from ._module import AlgebraLike, Grades, check_choice, joined
from ._normed import NORMS, Normed
from .gate import GATES


class FusedProduct(Normed):
    """A gated product of two multivectors with its norm."""

    weight: Parameter

    def __init__(
        self,
        algebra: AlgebraLike,
        gate: str,
        norm: str,
        eps: float,
        left: Grades | None,
        right: Grades | None,
    ) -> None:
        super().__init__(algebra)
        self.gate = check_choice("gate", gate, GATES)
        self.norm = check_choice("norm", norm, NORMS)
        self.eps = checks.epsilon("eps", eps)
        self.left = grades_of(self.algebra, "left", left)
        self.right = grades_of(self.algebra, "right", right)
        surprises.gates_without_scalars(type(self).__name__, self.gate, self.left, self.right)

    def _paths(self) -> int:
        return len(self.algebra.paths_between(self.left, self.right))

    def extra_repr(self) -> str:
        return joined(
            f"gate={self.gate!r}, norm={self.norm!r}, eps={self.eps}",
            "" if self.left is None else f"left={self.left}",
            "" if self.right is None else f"right={self.right}",
        )
