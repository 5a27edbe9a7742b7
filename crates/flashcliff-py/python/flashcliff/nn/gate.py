"""flash-clifford's gate, by itself."""

from __future__ import annotations

from torch import Tensor

from .. import functional as F
from .._derived.choices import CHOICES
from ._module import AlgebraLike, CliffordModule, check_choice

GATES = CHOICES["gate"]
"""Names of gates: ``gate(x) = g(x_0) x``."""


class MVGate(CliffordModule):
    """Multiplies every blade with a function of the scalar: ``y = g(x_0) x``.

    No parameters. Input and output are ``[blades, *batch, channels]``. With the gate ``"gelu"``
    the scalar becomes GELU of itself.

    Source: flash-clifford's ``MVGELU``; ``"gelu_tanh"`` is that of clifford-equivariant CNNs.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.MVGate((3, 0, 0), "silu")
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 4])
    """

    def __init__(self, algebra: AlgebraLike, gate: str = "gelu") -> None:
        super().__init__(algebra)
        self.gate = check_choice("gate", gate, GATES)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[blades, *batch, channels]`` times its gate, in the same shape."""
        return F.gate(x, self._algebra, gate=self.gate)

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, gate={self.gate!r}"
