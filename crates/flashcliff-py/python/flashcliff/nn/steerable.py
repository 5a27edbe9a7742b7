"""CGENN's steerable geometric product layers."""

from __future__ import annotations

import math
from typing import TypeGuard

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._derived import table
from .._ops import checks
from ._module import AlgebraLike, CliffordModule, check_features
from .grade_norm import GradeNorm, described_factors
from .linear import MVLinear
from .transformer import path
from .transformer.described import MessageDescription, Multivectors


@path.stands_for
class SteerableGeometricProduct(CliffordModule):
    """The geometric product of each channel with a normalised linear map of all channels.

    ``r = normalization(linear_right(x))``, ``z = sum_p weight[c, p] <<x>_a <r>_b>_p``,
    ``y = (linear_left(x) + z) / sqrt 2``, or ``y = z`` without ``include_first_order``.

    Shapes:
        - input and output ``[blades, *batch, features]``
        - ``weight`` ``[features, paths]``; starts normal, std ``1 / sqrt(dim + 1)``
        - ``linear_right`` and ``linear_left``: :class:`MVLinear`, without and with bias
        - ``normalization``: :class:`GradeNorm`

    Args:
        algebra: such as ``flashcliff.Algebra(3, 0, 0)``.
        features: channels.
        include_first_order: whether the linear map of the input is added.
        normalization_init: start of the normalisation's parameter; ``None`` leaves it out.

    Normalisation, product, sum and scale are one operator. A normalisation that is wrapped,
    hooked or replaced is called by itself.

    Source: CGENN's ``SteerableGeometricProductLayer`` (arXiv 2305.11141, section 4), with the
    names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.SteerableGeometricProduct((3, 0, 0), 4)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        features: int,
        include_first_order: bool = True,
        normalization_init: float | None = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.features = check_features("features", features)
        self.include_first_order = checks.flag("include_first_order", include_first_order)
        self.normalization: torch.nn.Module = torch.nn.Identity()
        if normalization_init is not None:
            self.normalization = GradeNorm(
                self.algebra, features, normalization_init, device=device, dtype=dtype
            )
        self.linear_right = MVLinear(
            self.algebra, features, features, bias=False, device=device, dtype=dtype
        )
        self.linear_left: MVLinear | None = None
        if include_first_order:
            self.linear_left = MVLinear(
                self.algebra, features, features, device=device, dtype=dtype
            )
        paths = self.algebra.path_count
        self.weight = Parameter(torch.empty(features, paths, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(self.algebra.grade_count))

    def forward(self, x: Tensor) -> Tensor:
        """The product of ``x`` ``[blades, *batch, features]`` with its linear map, in the same shape."""
        right = self.linear_right(x)
        a = None
        if _is_plain(self.normalization):
            a = self.normalization.a
        else:
            right = self.normalization(right)
        return F.steerable_product(
            x,
            right,
            self.weight,
            a,
            None if self.linear_left is None else self.linear_left(x),
            algebra=self._algebra,
        )

    def describe_on_graph(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the layer to a network of multivectors."""
        network.reads(self, "features", "_algebra")
        algebra, features = self._algebra, self.features
        weight = network.parameter(self, "weight", (features, algebra.path_count))
        a = described_factors(network, self.normalization, features, algebra)
        left = None if self.linear_left is None else network.call(self.linear_left, x).value
        right = network.call(self.linear_right, x).value
        of = table.STEERABLE_PRODUCT, algebra, (x.value, right, weight, a, left)
        return x._replace(value=network.operator(*of))

    def extra_repr(self) -> str:
        return (
            f"{self.algebra!r}, features={self.features}, "
            f"include_first_order={self.include_first_order}"
        )


def _is_plain(module: torch.nn.Module) -> TypeGuard[GradeNorm]:
    """Whether a call of the module only runs its own ``forward``, without hooks."""
    return path.of_call(module, GradeNorm) is None
