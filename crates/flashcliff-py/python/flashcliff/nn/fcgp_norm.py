"""The gated, weighted geometric product with its norm, fully connected."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._ops import checks
from ._fused import FusedProduct
from ._module import AlgebraLike, Grades, check_features, joined


class FCGPNorm(FusedProduct):
    """``norm(sum_n sum_p weight[p, n, m] <<gate(x[n])>_a <gate(y[n])>_b>_p)``, over all channels.

    Shapes:
        - ``x``, ``y`` ``[blades, *batch, in_features]``, of the grades ``left`` and ``right``
        - output ``[reachable blades, *batch, out_features]``
        - ``weight`` ``[paths, in_features, out_features]``; starts normal, std
          ``1 / sqrt(in_features (dim + 1))``

    Args:
        block_bytes: as for :func:`flashcliff.functional.fcgp_norm`: bounds the path products of a
            block on CUDA, the main part of the workspace.

    Source: flash-clifford's ``fused_gelu_fcgp_norm``; CGENN's fully connected product (arXiv
    2305.11141, section 4) and its initialisation.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> x = torch.randn(8, 32, 4)
        >>> layer = nn.FCGPNorm((3, 0, 0), 4, 16)
        >>> layer(x, x).shape
        torch.Size([8, 32, 16])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        out_features: int,
        *,
        gate: str = "gelu",
        norm: str = "invariant",
        eps: float = 1e-6,
        left: Grades | None = None,
        right: Grades | None = None,
        block_bytes: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra, gate, norm, eps, left, right)
        self.in_features = check_features("in_features", in_features)
        self.out_features = check_features("out_features", out_features)
        self.block_bytes = checks.block_bytes(block_bytes)
        shape = (self._paths(), in_features, out_features)
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fan = self.in_features * self.algebra.grade_count
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(fan))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The normed sum of products of ``x`` and ``y`` ``[blades, *batch, in_features]``:
        ``[reachable blades, *batch, out_features]``.
        """
        return F.fcgp_norm(
            x,
            y,
            self.weight,
            self._algebra,
            gate=self.gate,
            norm=self.norm,
            eps=self.eps,
            left=self.left,
            right=self.right,
            block_bytes=self.block_bytes,
        )

    def extra_repr(self) -> str:
        return joined(
            f"{self.algebra!r}, in_features={self.in_features}, "
            f"out_features={self.out_features}, {super().extra_repr()}",
            "" if self.block_bytes is None else f"block_bytes={self.block_bytes}",
        )
