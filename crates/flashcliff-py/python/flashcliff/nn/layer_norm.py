"""CGENN's norm over channels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._derived import table
from ._module import AlgebraLike, CliffordModule, check_features
from .transformer import path
from .transformer.described import MessageDescription, Multivectors


@path.stands_for
class MVLayerNorm(CliffordModule):
    """Divides by the mean norm over channels: ``y = a x / (mean_c |x_c| + 1e-6)``.

    ``|x|`` is the smooth norm of the whole multivector, ``(q(x)^2 + 1e-16)^(1/4)``.

    Shapes:
        - input and output ``[blades, *batch, features]``
        - ``a`` ``[1, features]``; starts at 1

    Source: CGENN's ``MVLayerNorm``.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.MVLayerNorm((3, 0, 0), 4)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.features = check_features("features", features)
        self.a = Parameter(torch.empty(1, features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.ones_(self.a)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[blades, *batch, features]``, normalised over channels, in the same shape."""
        return F.mv_layer_norm(x, self.a.view(-1, 1), self._algebra)

    def describe_on_graph(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the norm to a network of multivectors."""
        network.reads(self, "features", "_algebra")
        a = network.parameter(self, "a", (1, self.features), (self.features, 1))
        of = table.MV_LAYER_NORM, self._algebra, (x.value, a)
        return x._replace(value=network.operator(*of))

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, features={self.features}"
