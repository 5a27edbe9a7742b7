"""The convex hull model."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algebra import Algebra
from .._module import check_count, check_features
from ..embedding import PointEmbedding
from ..steerable import SteerableGeometricProduct
from ..transformer.described import MessageDescription, MessageVariant, Multivectors


class Hulls(torch.nn.Module):
    """Volume of the convex hull of points in 5 dimensions, invariant under O(5).

    :class:`PointEmbedding`, ``products`` times :class:`SteerableGeometricProduct`, the Euclidean
    norm of each channel over its 32 blades, then ``Linear``, SiLU, ``Linear(features -> 1)``.
    Points ``[batch, points, 5]`` give ``[batch]``. 58,849 parameters by default.

    Source: CGENN's ``ConvexHullCGMLP``, with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import models
        >>> models.Hulls(points=8)(torch.randn(2, 8, 5)).shape
        torch.Size([2])
    """

    def __init__(
        self,
        points: int = 16,
        features: int = 32,
        products: int = 4,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        points = check_features("points", points)
        self.algebra = algebra = Algebra(5, 0, 0)
        self.net = torch.nn.Sequential(
            PointEmbedding(algebra, points, features, device=device, dtype=dtype),
            *(
                SteerableGeometricProduct(algebra, features, device=device, dtype=dtype)
                for _ in range(check_count("products", products))
            ),
        )
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(features, features, device=device, dtype=dtype),
            torch.nn.SiLU(),
            torch.nn.Linear(features, 1, device=device, dtype=dtype),
        )

    def forward(self, points: Tensor) -> Tensor:
        """From points ``[batch, points, 5]`` to an estimate of the volume of each hull, ``[batch]``."""
        norms = torch.linalg.vector_norm(self.net(points), dim=0)
        volume: Tensor = self.mlp(norms)
        return volume.squeeze(-1)

    def variant(self) -> MessageVariant:
        """The call that the network was made for."""
        embedding = self.net[0]
        assert isinstance(embedding, PointEmbedding)
        return MessageVariant("points", embedding.in_features, self.algebra.dim, by_rows=True)

    def describe_on_graph(self, network: MessageDescription, points: Multivectors) -> Multivectors:
        """Adds the network to another one."""
        norms = network.blade_norm(network.calls(self.net, points))
        return network.perceptron(self.mlp, self.algebra, norms)
