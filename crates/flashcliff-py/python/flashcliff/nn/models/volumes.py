"""The signed volume model."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algebra import Algebra
from .._module import check_count, check_features
from ..embedding import embed_points
from ..fully_connected import FullyConnectedSteerableGeometricProduct
from ..silu import MVSiLU
from ..transformer.described import MessageDescription, MessageVariant, Multivectors


class Volumes(torch.nn.Module):
    """A pseudoscalar of vectors in 3 dimensions: it changes sign under reflections.

    :class:`FullyConnectedSteerableGeometricProduct` from the points to ``features`` channels,
    ``gates`` times :class:`MVSiLU`, the product layer again to one channel, and its pseudoscalar.
    Points ``[batch, points, 3]`` give ``[batch]``. 48,913 parameters by default.

    Source: CGENN's ``O3CGMLP`` with 96 features and 4 layers (3 gates), with the names of its
    state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import models
        >>> models.Volumes(features=8)(torch.randn(4, 3, 3)).shape
        torch.Size([4])
    """

    def __init__(
        self,
        points: int = 3,
        features: int = 96,
        gates: int = 3,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.points = points = check_features("points", points)
        self.algebra = algebra = Algebra(3, 0, 0)
        product = FullyConnectedSteerableGeometricProduct
        self.net = torch.nn.Sequential(
            product(algebra, points, features, device=device, dtype=dtype),
            *(
                MVSiLU(algebra, features, device=device, dtype=dtype)
                for _ in range(check_count("gates", gates))
            ),
            product(algebra, features, 1, device=device, dtype=dtype),
        )

    def forward(self, points: Tensor) -> Tensor:
        """From vectors ``[batch, points, 3]`` to a pseudoscalar of each set, ``[batch]``."""
        x: Tensor = self.net(embed_points(points, self.algebra))
        return x[-1].squeeze(-1)

    def variant(self) -> MessageVariant:
        """The call that the network was made for."""
        return MessageVariant("points", self.points, self.algebra.dim, by_rows=True)

    def describe_on_graph(self, network: MessageDescription, points: Multivectors) -> Multivectors:
        """Adds the network to another one."""
        x = network.extended(network.points(points), self.algebra.blade_count)
        x = network.calls(self.net, x)
        return network.blades_of(x, [self.algebra.blade_count - 1, 1])[1]
