"""The O(5) regression model."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algebra import Algebra
from .._module import check_features
from ..embedding import PointEmbedding
from ..steerable import SteerableGeometricProduct
from ..transformer.described import MessageDescription, MessageVariant, Multivectors


class Regression(torch.nn.Module):
    """An invariant function of two vectors in 5 dimensions.

    ``PointEmbedding(2 -> 8)``, :class:`SteerableGeometricProduct` of 8 channels, its scalar parts,
    then ``Linear(8 -> width)``, ReLU, ``Linear(width -> width)``, ReLU, ``Linear(width -> 1)``.
    Points ``[batch, 2, 5]`` give ``[batch]``. Width 580 (344,077 parameters) is CGENN's.

    Source: CGENN's ``O5CGMLP``, with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import models
        >>> models.Regression(width=32)(torch.randn(4, 2, 5)).shape
        torch.Size([4])
    """

    def __init__(
        self,
        width: int = 580,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.algebra = algebra = Algebra(5, 0, 0)
        width = check_features("width", width)
        self.gp = torch.nn.Sequential(
            PointEmbedding(algebra, 2, 8, device=device, dtype=dtype),
            SteerableGeometricProduct(algebra, 8, device=device, dtype=dtype),
        )
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(8, width, device=device, dtype=dtype),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width, device=device, dtype=dtype),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 1, device=device, dtype=dtype),
        )

    def forward(self, points: Tensor) -> Tensor:
        """From pairs of vectors ``[batch, 2, 5]`` to a value of each pair, ``[batch]``."""
        value: Tensor = self.mlp(self.gp(points)[0])
        return value.squeeze(-1)

    def variant(self) -> MessageVariant:
        """The call that the network was made for."""
        return MessageVariant("points", 2, self.algebra.dim, by_rows=True)

    def describe_on_graph(self, network: MessageDescription, points: Multivectors) -> Multivectors:
        """Adds the network to another one."""
        x = network.calls(self.gp, points)
        scalars = network.blades_of(x, [1, self.algebra.blade_count - 1])[0]
        return network.perceptron(self.mlp, self.algebra, scalars)
