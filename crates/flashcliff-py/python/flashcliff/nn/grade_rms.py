"""flash-clifford's norm, by itself."""

from __future__ import annotations

from torch import Tensor

from .. import functional as F
from ._module import AlgebraLike, CliffordModule


class GradeRMSNorm(CliffordModule):
    """RMS norm per grade over channels: ``y_g = x_g / sqrt(mean_c |x_g|^2 + eps)``.

    ``|.|`` is Euclidean. No parameters. Input and output are ``[blades, *batch, channels]``.

    Source: the norm of flash-clifford's fused functions.
    """

    def __init__(self, algebra: AlgebraLike, eps: float = 1e-6) -> None:
        super().__init__(algebra)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.grade_rms(x, self.algebra, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, eps={self.eps}"
