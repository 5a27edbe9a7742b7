"""CGENN's learned normalisation per grade."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._ops import checks
from ..algebra import Algebra
from ._module import AlgebraLike, CliffordModule, check_features
from .transformer import path
from .transformer.described import MessageDescription, Undescribed


@path.stands_for
class GradeNorm(CliffordModule):
    """Moves each grade of each channel between no normalisation and full normalisation.

    ``y_g = x_g / (s (|x_g| - 1) + 1 + 1e-6)``, ``s = sigmoid(a_g)``, with the smooth norm
    ``|x| = (q(x)^2 + 1e-16)^(1/4)``.

    Shapes:
        - input and output ``[blades, *batch, features]``
        - ``a`` ``[features, grades]``; starts at ``init``: at 0 half of the way

    Source: CGENN's ``NormalizationLayer`` (arXiv 2305.11141, section 4).

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.GradeNorm((3, 0, 0), 4)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        features: int,
        init: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.features = check_features("features", features)
        self.init = checks.finite("init", init)
        shape = (features, self.algebra.grade_count)
        self.a = Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.a, self.init)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[blades, *batch, features]``, normalised, in the same shape."""
        return F.grade_norm(x, self.a, self._algebra)

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, features={self.features}, init={self.init}"


def described_factors(
    network: MessageDescription, norm: torch.nn.Module, features: int, algebra: Algebra
) -> int | None:
    """Adds the factors of the norm of a product to a network; ``None`` where an ``Identity`` stands for the norm.

    Raises:
        Undescribed: the norm is of another class.
    """
    if type(norm) is torch.nn.Identity:
        return None
    if not isinstance(norm, GradeNorm):
        raise Undescribed("a product normalises in a way of its own")
    return network.parameter(norm, "a", (features, algebra.grade_count))
