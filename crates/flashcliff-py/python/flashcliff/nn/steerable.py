"""CGENN's steerable geometric product layers."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

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


class SteerableProduct(CliffordModule):
    """The base of products of an input with a normalised linear map of it, with a linear map beside them."""

    normalization: torch.nn.Module
    linear_left: MVLinear | None

    def _add_maps(
        self, inputs: int, outputs: int, first_order: bool, init: float | None, **made: Any
    ) -> None:
        """Adds the normalisation and the linear maps."""
        self.include_first_order = checks.flag("include_first_order", first_order)
        self.normalization = torch.nn.Identity()
        if init is not None:
            init = checks.finite("normalization_init", init)
            self.normalization = GradeNorm(self.algebra, inputs, init, **made)
        self.linear_right = MVLinear(self.algebra, inputs, inputs, bias=False, **made)
        self.linear_left = None
        if first_order:
            self.linear_left = MVLinear(self.algebra, inputs, outputs, **made)


@path.stands_for
class SteerableGeometricProduct(SteerableProduct):
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
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self._add_maps(features, features, include_first_order, normalization_init, **made)
        paths = self.algebra.path_count
        self.weight = Parameter(torch.empty(features, paths, **made))
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
