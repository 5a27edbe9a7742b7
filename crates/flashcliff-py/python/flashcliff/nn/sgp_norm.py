"""The gated, weighted geometric product with its norm, channel by channel."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from ._fused import FusedProduct
from ._module import AlgebraLike, Grades, check_features


class SGPNorm(FusedProduct):
    """``norm(sum_p weight[c, p] <<gate(x)>_a <gate(y)>_b>_p)``, channel by channel.

    Shapes:
        - ``x``, ``y`` ``[blades, *batch, features]``, of the grades ``left`` and ``right``
        - output ``[reachable blades, *batch, features]``
        - ``weight`` ``[features, paths]``; starts normal, std ``1 / sqrt(dim + 1)``

    A path is a grade triple (left, output, right); they are ordered lexicographically.

    Source: flash-clifford's ``fused_gelu_sgp_norm``; the product is CGENN's (arXiv 2305.11141,
    section 4).

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> x = torch.randn(8, 32, 4)
        >>> layer = nn.SGPNorm((3, 0, 0), 4)
        >>> layer(x, x).shape
        torch.Size([8, 32, 4])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        features: int,
        *,
        gate: str = "gelu",
        norm: str = "invariant",
        eps: float = 1e-6,
        left: Grades | None = None,
        right: Grades | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra, gate, norm, eps, left, right)
        self.features = check_features("features", features)
        self.weight = Parameter(torch.empty(features, self._paths(), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(self.algebra.grade_count))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The normed product of ``x`` and ``y`` ``[blades of left or right, *batch, features]``:
        ``[reachable blades, *batch, features]``.
        """
        return F.sgp_norm(
            x,
            y,
            self.weight,
            self._algebra,
            gate=self.gate,
            norm=self.norm,
            eps=self.eps,
            left=self.left,
            right=self.right,
        )

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, features={self.features}, {super().extra_repr()}"
