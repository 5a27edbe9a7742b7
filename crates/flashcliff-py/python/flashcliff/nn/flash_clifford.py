"""flash-clifford's layer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._ops import checks, surprises
from .._ops.op import BIAS_MODES
from ._module import (
    AlgebraLike,
    check_choice,
    check_features,
    joined,
)
from ._normed import NORMS, Normed


class FlashCliffordLayer(Normed):
    """A grade-wise linear map, the gated product with the input, and a norm per grade.

    ``y = linear_weight[grade] x + linear_bias``, then :func:`flashcliff.functional.sgp_norm` (or
    ``fcgp_norm``) of ``x`` and ``y`` with the gate ``"gelu"`` and ``eps = 1e-6``; with ``sgp_norm``
    it is one operator, :func:`flashcliff.functional.mv_linear_sgp_norm`.

    Shapes:
        - input and output ``[blades, *batch, features]``
        - ``linear_weight`` ``[grades, features, features]``: grade, input, output
        - ``linear_bias`` ``[1, 1, features]``; starts at 0
        - ``gp_weight`` ``[features, paths]``, or ``[paths, features, features]`` (path, input,
          output) with ``fully_connected``

    Weights start normal. The std of ``gp_weight`` is ``1 / sqrt(dim + 1)``; that of
    ``linear_weight`` is ``1 / sqrt(features (dim + 1))``, or ``1 / sqrt(features)`` with
    ``fully_connected``.

    Args:
        algebra: any, such as ``flashcliff.Algebra(3, 0, 0)``.
        features: channels.
        norm: ``"invariant"`` keeps the layer equivariant in every algebra. ``"rms"`` is flash-clifford's,
            and the same where all vectors square to one sign. ``"none"``: there is none.
        fully_connected: sums the product over all input channels.
        bias_mode: ``"scalar"`` keeps the layer equivariant. ``"every_blade"`` adds the bias to every
            blade as flash-clifford does, which **breaks equivariance** as soon as training moves
            it off zero; :class:`flashcliff.EquivarianceWarning` says so once. ``"none"``: there is no bias.
        block_bytes: as for :func:`flashcliff.functional.fcgp_norm`: with ``fully_connected`` it
            bounds the path products of a block on CUDA, the main part of the workspace; otherwise
            it has no effect.

    Source: flash-clifford, ``modules/layer.py``.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.FlashCliffordLayer((3, 0, 0), 4)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    _warns_of_bias: ClassVar[bool] = True

    def __init__(
        self,
        algebra: AlgebraLike,
        features: int,
        *,
        norm: str = "invariant",
        fully_connected: bool = False,
        bias_mode: str = "scalar",
        block_bytes: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.features = check_features("features", features)
        self.norm = check_choice("norm", norm, NORMS)
        self.fully_connected = checks.flag("fully_connected", fully_connected)
        self.bias_mode = check_choice("bias_mode", bias_mode, (*BIAS_MODES, "none"))
        self.block_bytes = checks.block_bytes(block_bytes)
        if self.bias_mode == "every_blade" and self._warns_of_bias:
            surprises.bias_on_every_blade(type(self).__name__)
        paths = self.algebra.path_count
        shape = (paths, features, features) if fully_connected else (features, paths)
        self.gp_weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        shape = (self.algebra.grade_count, features, features)
        self.linear_weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias_mode == "none":
            self.register_parameter("linear_bias", None)
        else:
            self.linear_bias = Parameter(torch.empty(1, 1, features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        grades = self.algebra.grade_count
        torch.nn.init.normal_(self.gp_weight, std=1 / math.sqrt(grades))
        fan = self.features if self.fully_connected else self.features * grades
        torch.nn.init.normal_(self.linear_weight, std=1 / math.sqrt(fan))
        if self.linear_bias is not None:
            torch.nn.init.zeros_(self.linear_bias)

    def forward(self, x: Tensor) -> Tensor:
        """The normed product of ``x`` ``[blades, *batch, features]`` with its linear map, in the same shape."""
        bias = None if self.linear_bias is None else self.linear_bias.view(-1)
        bias_mode = "every_blade" if self.bias_mode == "every_blade" else "scalar"
        if self.fully_connected:
            y = F.mv_linear(
                x,
                self.linear_weight,
                bias,
                algebra=self._algebra,
                bias_mode=bias_mode,
                weight_layout="grade_in_out",
            )
            return F.fcgp_norm(
                x, y, self.gp_weight, self._algebra, norm=self.norm, block_bytes=self.block_bytes
            )
        return F.mv_linear_sgp_norm(
            x,
            self.linear_weight,
            bias,
            self.gp_weight,
            self._algebra,
            bias_mode=bias_mode,
            weight_layout="grade_in_out",
            norm=self.norm,
        )

    def extra_repr(self) -> str:
        return joined(
            f"{self.algebra!r}, features={self.features}, norm={self.norm!r}, "
            f"fully_connected={self.fully_connected}, bias_mode={self.bias_mode!r}",
            "" if self.block_bytes is None else f"block_bytes={self.block_bytes}",
        )
