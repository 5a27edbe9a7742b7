"""CGENN's gate per grade."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from .. import functional as F
from .._derived import table
from .._derived.choices import CHOICES
from ._module import AlgebraLike, CliffordModule, check_choice, check_features
from .transformer import path
from .transformer.described import MessageDescription, Multivectors


@path.stands_for
class MVSiLU(CliffordModule):
    """Each grade of each channel times a sigmoid of an invariant of it.

    ``y_g = sigmoid(a_g u_g + b_g) x_g``; ``u_0`` is the scalar, ``u_g`` above is the quadratic
    form ``q(x_g)`` (``"mag2"``) or the smooth norm ``(q(x_g)^2 + 1e-16)^(1/4)`` (``"norm"``).

    Shapes:
        - input and output ``[blades, *batch, features]``
        - ``a`` ``[1, features, grades]``; starts at 1
        - ``b`` ``[1, features, grades]``; starts at 0

    Source: CGENN's ``MVSiLU``.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.MVSiLU((3, 0, 0), 4)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        features: int,
        invariant: str = "mag2",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.features = check_features("features", features)
        self.invariant = check_choice("invariant", invariant, CHOICES["invariant"])
        shape = (1, features, self.algebra.grade_count)
        self.a = Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.b = Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.ones_(self.a)
        torch.nn.init.zeros_(self.b)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[blades, *batch, features]`` times the gates of its grades, in the same shape."""
        a, b = self.a.squeeze(0), self.b.squeeze(0)
        return F.mv_silu(x, a, b, self._algebra, invariant=self.invariant)

    def describe_on_graph(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the gate to a network of multivectors."""
        network.reads(self, "features", "invariant", "_algebra")
        seen = self.features, self._algebra.grade_count
        a, b = (network.parameter(self, name, (1, *seen), seen) for name in ("a", "b"))
        of = table.MV_SILU, self._algebra, (x.value, a, b)
        return x._replace(value=network.operator(*of, self.invariant))

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, features={self.features}, invariant={self.invariant!r}"
