"""CGENN's perceptron."""

from __future__ import annotations

import torch
from torch import Tensor

from ._module import AlgebraLike, CliffordModule, check_features, check_tensor
from .layer_norm import MVLayerNorm
from .linear import MVLinear
from .silu import MVSiLU
from .steerable import SteerableGeometricProduct
from .transformer import path
from .transformer.described import (
    MessageDescription,
    MessageGiven,
    MessageVariant,
    Multivectors,
    Networked,
    attempt_on_graph,
)


@path.stands_for
class CEMLP(CliffordModule, Networked):
    """A perceptron: layers of :class:`MVLinear`, :class:`MVSiLU`, :class:`SteerableGeometricProduct` and :class:`MVLayerNorm`.

    It is one function of autograd with one plan, and one node of a compiled graph, while nothing hooks or replaces its layers.

    Shapes:
        - input ``[blades, *batch, in_channels]``
        - output ``[blades, *batch, out_channels]``
        - ``layers.{number}.0`` to ``layers.{number}.3``: the parts of each layer

    Args:
        algebra: such as ``flashcliff.Algebra(3, 0, 0)``.
        in_channels: channels of the input.
        hidden_channels: channels between layers.
        out_channels: channels of the output.
        layers: the number of layers, at least 1.

    Source: CGENN's ``CEMLP``, of its n-body experiment (arXiv 2305.11141, section 5), with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.CEMLP((3, 0, 0), 4, 8, 16)
        >>> layer(torch.randn(8, 32, 4)).shape
        torch.Size([8, 32, 16])
    """

    variants = MessageVariant

    def __init__(
        self,
        algebra: AlgebraLike,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        layers: int = 2,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.in_channels = check_features("in_channels", in_channels)
        self.hidden_channels = check_features("hidden_channels", hidden_channels)
        self.out_channels = check_features("out_channels", out_channels)
        hidden = [self.hidden_channels] * (check_features("layers", layers) - 1)
        sizes = [self.in_channels, *hidden, self.out_channels]

        def layer(start: int, end: int) -> torch.nn.ModuleList:
            kinds = (MVSiLU, SteerableGeometricProduct, MVLayerNorm)
            first = MVLinear(self.algebra, start, end, device=device, dtype=dtype)
            rest = (kind(self.algebra, end, device=device, dtype=dtype) for kind in kinds)
            return torch.nn.ModuleList([first, *rest])

        self.layers = torch.nn.ModuleList(map(layer, sizes[:-1], sizes[1:]))

    @property
    def first(self) -> torch.nn.Module:
        """The first linear map."""
        return self._parts()[0]

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[blades, *batch, in_channels]`` to ``[blades, *batch, out_channels]``."""
        check_tensor("x", x)
        found = None
        if x.dim() > 2:
            rows = MessageGiven(x.flatten(1, -2))
            found = attempt_on_graph(self, rows, lambda given: self._composed(given.here))
        if found is None:
            return self._composed(x)
        return found.view(found.shape[0], *x.shape[1:-1], found.shape[-1])

    def _composed(self, x: Tensor) -> Tensor:
        """The result by the calls of layers."""
        return self.behind_first(self.first(x))

    def behind_first(self, x: Tensor) -> Tensor:
        """The result, by that of the first linear map."""
        for part in self._parts()[1:]:
            x = part(x)
        return x

    def variant(self) -> MessageVariant:
        """The call that the perceptron was made for."""
        return MessageVariant("x", self._algebra.blade_count, self.in_channels)

    def describe_on_graph(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the layers to a network of multivectors."""
        network.reads(self, "in_channels", "_algebra")
        return self.describe_behind_first(network, network.call(self.first, x))

    def describe_behind_first(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        """Adds the layers after the first linear map."""
        found: Multivectors = network.calls(self._parts()[1:], x)
        return found

    def _parts(self) -> list[torch.nn.Module]:
        return [part for layer in self.layers for part in layer]  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        sizes = self.in_channels, self.hidden_channels, self.out_channels
        return f"{self.algebra!r}, {', '.join(map(str, sizes))}, layers={len(self.layers)}"
