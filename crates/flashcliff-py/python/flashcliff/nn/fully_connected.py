"""CGENN's fully connected steerable geometric product layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._derived import table
from .._ops import checks
from ._module import AlgebraLike, check_features, joined
from .grade_norm import described_factors
from .steerable import SteerableProduct
from .transformer import path
from .transformer.described import MessageDescription, Multivectors


@path.stands_for
class FullyConnectedSteerableGeometricProduct(SteerableProduct):
    """Geometric products of channels with normalised linear maps of them, summed over channels.

    ``r = normalization(linear_right(x))``,
    ``z[m] = sum_n sum_p weight[m, n, p] <<x[n]>_a <r[n]>_b>_p``,
    ``y = (linear_left(x) + z) / sqrt 2``, or ``y = z`` without ``include_first_order``.

    Shapes:
        - input ``[blades, *batch, in_features]``, output ``[blades, *batch, out_features]``
        - ``weight`` ``[out_features, in_features, paths]``; starts normal, std
          ``1 / sqrt(in_features (dim + 1))``
        - ``linear_right``: :class:`MVLinear` of ``in_features``, no bias
        - ``linear_left``: :class:`MVLinear` from ``in_features`` to ``out_features``
        - ``normalization``: :class:`GradeNorm` of ``in_features``

    Args:
        block_bytes: as for :func:`flashcliff.functional.fcgp_norm`: bounds the path products of a
            block on CUDA, the main part of the workspace.

    Source: CGENN's ``FullyConnectedSteerableGeometricProductLayer`` (arXiv 2305.11141, section 4),
    with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.FullyConnectedSteerableGeometricProduct((3, 0, 0), 4, 16)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 16])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        out_features: int,
        include_first_order: bool = True,
        normalization_init: float | None = 0.0,
        *,
        block_bytes: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.in_features = check_features("in_features", in_features)
        self.out_features = check_features("out_features", out_features)
        self.block_bytes = checks.block_bytes(block_bytes)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        sizes = self.in_features, self.out_features
        self._add_maps(*sizes, include_first_order, normalization_init, **made)
        shape = (out_features, in_features, self.algebra.path_count)
        self.weight = Parameter(torch.empty(shape, **made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fan = self.in_features * self.algebra.grade_count
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(fan))

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[blades, *batch, in_features]`` to ``[blades, *batch, out_features]``."""
        right = self.normalization(self.linear_right(x))
        # The state dict has [out, in, paths]; the operator reads [paths, in, out].
        weight = self.weight.permute(2, 1, 0).contiguous()
        product = F.fcgp_norm(
            x,
            right,
            weight,
            self._algebra,
            gate="none",
            norm="none",
            block_bytes=self.block_bytes,
        )
        if self.linear_left is None:
            return product
        left: Tensor = self.linear_left(x)
        return (left + product) / math.sqrt(2)

    def describe_on_graph(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the layer to a network of multivectors."""
        network.reads(self, "in_features", "out_features", "_algebra")
        algebra, own = self._algebra, self.in_features
        a = described_factors(network, self.normalization, own, algebra)
        right = network.call(self.linear_right, x).value
        if a is not None:
            right = network.operator(table.GRADE_NORM, algebra, (right, a))
        shape = self.out_features, own, algebra.path_count
        weight = network.reversed_axes(network.parameter(self, "weight", shape))
        options = "none", "none", 1e-6, None, None, self.block_bytes
        of = table.FCGP_NORM, algebra, (x.value, right, weight)
        made = x._replace(value=network.operator(*of, *options), channels=self.out_features)
        if self.linear_left is None:
            return made
        return network.sum(network.call(self.linear_left, x), made, 1 / math.sqrt(2))

    def extra_repr(self) -> str:
        return joined(
            f"{self.algebra!r}, in_features={self.in_features}, "
            f"out_features={self.out_features}, include_first_order={self.include_first_order}",
            "" if self.block_bytes is None else f"block_bytes={self.block_bytes}",
        )
