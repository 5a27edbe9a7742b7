"""flash-clifford's norm, by itself."""

from __future__ import annotations

from torch import Tensor

from .. import functional as F
from .._ops import checks
from ._module import AlgebraLike, check_choice
from ._normed import NORMS, Normed


class GradeRMSNorm(Normed):
    """Norm per grade over channels: ``y_g = x_g / sqrt(mean_c |x_g|^2 + eps)``.

    ``norm`` says what ``|x_g|^2`` is, as of :func:`flashcliff.functional.sgp_norm`: ``"invariant"``,
    which versors leave alone, or ``"rms"``. No parameters. Input and output are ``[blades, *batch,
    channels]``.

    Source: the norm of flash-clifford's fused functions.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.GradeRMSNorm((3, 0, 0))
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    def __init__(
        self, algebra: AlgebraLike, eps: float = 1e-6, *, norm: str = "invariant"
    ) -> None:
        super().__init__(algebra)
        self.norm = check_choice("norm", norm, NORMS[1:])
        self.eps = checks.epsilon("eps", eps)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[blades, *batch, channels]``, normalised over channels, in the same shape."""
        return F.grade_rms(x, self._algebra, norm=self.norm, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, norm={self.norm!r}, eps={self.eps}"
