"""Plain layers, which act on all components of an item together, and commute with no group by themselves.

Vectors are ``[dim, *batch, channels]`` and scalars ``[*batch, scalars]``; the components of an item are its vectors, blade by
blade, then its scalars.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...._ops import checks
from ..._module import check_count, check_features
from .. import path
from ..described import Description, Tokens, Undescribed, drawn
from ..gate import ACTIVATIONS
from ..geometry import GeometryLike
from ..heads import Pair
from ..norm import EPS, scalar_layer_norm
from .change import vectors_of

__all__ = [
    "ComponentDropout",
    "ComponentGelu",
    "ComponentLinear",
    "ComponentMLP",
    "ComponentNorm",
]


def components(vectors: Tensor, scalars: Tensor | None) -> Tensor:
    """The components of items, ``[*batch, dim * channels + scalars]``."""
    found = vectors.movedim(0, -2).flatten(-2)
    if scalars is None:
        return found
    if scalars.shape[:-1] != found.shape[:-1]:
        raise ValueError(
            f"scalars: expected [*batch, scalars] with the batch {list(found.shape[:-1])} of vectors, got {list(scalars.shape)}"
        )
    return torch.cat((found, scalars), dim=-1)


def of_components(x: Tensor, dim: int, channels: int) -> Pair:
    """The vectors and scalars of which these are the components; ``None`` for no scalars."""
    width = dim * channels
    vectors = x[..., :width].unflatten(-1, (dim, channels)).movedim(-2, 0)
    return vectors, x[..., width:] if x.shape[-1] > width else None


def _mapped(function: Callable[[Tensor], Tensor], vectors: Tensor, scalars: Tensor | None) -> Pair:
    """A function of components that keeps their number."""
    found = function(components(vectors, scalars))
    return of_components(found, vectors.shape[0], vectors.shape[-1])


@path.stands_for
class ComponentLinear(nn.Linear):
    """A linear map of all components of items, with a bias: that of :class:`torch.nn.Linear`, and its parameters.

    Args:
        geometry: an algebra without null vectors.
        in_channels, out_channels: vector channels.
        in_scalars, out_scalars: scalar channels.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ComponentLinear
        >>> layer = ComponentLinear(Algebra(1, 3, 0), 6, 3, 8, 5)
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 3]), torch.Size([2, 10, 5]))
    """

    def __init__(
        self,
        geometry: GeometryLike,
        in_channels: int,
        out_channels: int,
        in_scalars: int = 0,
        out_scalars: int = 0,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        dim = vectors_of(geometry).algebra.dim
        inputs = dim * check_count("in_channels", in_channels)
        outputs = dim * check_count("out_channels", out_channels)
        inputs += check_count("in_scalars", in_scalars)
        outputs += check_count("out_scalars", out_scalars)
        super().__init__(
            inputs, outputs, checks.flag("bias", bias), device=device, dtype=dtype
        )
        self.out_channels, self.out_scalars = out_channels, out_scalars

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the map to a network."""
        network.reads(self, "out_channels", "out_scalars", "in_features", "out_features")
        x = network.components(x)
        parameters = {
            "s2s.weight": network.parameter(self, "weight", (self.out_features, self.in_features))
        }
        bias = network.optional(self, "bias", (self.out_features,))
        if bias is not None:
            parameters["mvs2s.bias"] = bias
        if x.channels != (0, self.in_features):
            raise Undescribed("a linear map has other components than its input")
        made = network.linear(x.geometry, x, [(0, self.out_features)], [parameters])
        return network.of_components(made, (self.out_channels, self.out_scalars))

    def forward(self, vectors: Tensor, scalars: Tensor | None = None) -> Pair:  # type: ignore[override]
        """From vectors ``[dim, *batch, in_channels]`` and scalars ``[*batch, in_scalars]`` to ``out_channels`` and
        ``out_scalars``.
        """
        x = components(vectors, scalars)
        if x.shape[-1] != self.in_features:
            got = 0 if scalars is None else scalars.shape[-1]
            raise ValueError(
                f"vectors and scalars: expected {self.in_features} numbers of an item, got {x.shape[-1]}, of "
                f"{vectors.shape[-1]} vectors of {len(vectors)} dimensions and {got} scalars"
            )
        found = F.linear(x, self.weight, self.bias)
        return of_components(found, vectors.shape[0], self.out_channels)


@path.stands_for
class ComponentNorm(nn.Module):
    """The layer norm of all components of an item, without gains.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ComponentNorm
        >>> layer = ComponentNorm()
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the norm to a network."""
        made = network.norm(x.geometry, network.components(x), EPS, (None, None))
        return network.of_components(made, x.channels)

    def forward(self, vectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Vectors ``[dim, *batch, channels]`` and scalars ``[*batch, scalars]``, normalised together, in the same
        shapes.
        """
        return _mapped(scalar_layer_norm, vectors, scalars)


@path.stands_for
class ComponentGelu(nn.Module):
    """GELU of each component.

    Args:
        tanh: whether in the form with a hyperbolic tangent.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ComponentGelu
        >>> layer = ComponentGelu()
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    def __init__(self, tanh: bool = False) -> None:
        super().__init__()
        self.activation = "gelu_tanh" if checks.flag("tanh", tanh) else "gelu"

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the function to a network."""
        network.reads(self, "activation")
        made = network.gate(network.components(x), (self.activation, self.activation))
        return network.of_components(made, x.channels)

    def forward(self, vectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """GELU of vectors ``[dim, *batch, channels]`` and scalars ``[*batch, scalars]``, in the same shapes."""
        return _mapped(ACTIVATIONS[self.activation], vectors, scalars)


@path.stands_for
class ComponentDropout(nn.Module):
    """Dropout of each component, in training.

    Args:
        geometry: an algebra without null vectors.
        p: the probability.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ComponentDropout
        >>> layer = ComponentDropout(Algebra(1, 3, 0), p=0.1)
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    drops = "p"
    """The attribute that is the probability."""

    def __init__(self, geometry: GeometryLike, p: float) -> None:
        super().__init__()
        self.geometry = vectors_of(geometry)
        self.p = checks.number("p", p)
        if not 0 <= self.p < 1:
            raise ValueError(f"p: expected a probability below 1, got {p!r}")

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds dropout to a network."""
        made = network.dropout(self.geometry, self, network.components(x))
        return network.of_components(made, x.channels)

    def forward(self, vectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Vectors ``[dim, *batch, channels]`` and scalars ``[*batch, scalars]``; in training some components are 0."""
        if not self.training or self.p == 0:
            return vectors, scalars
        return _mapped(self._drop, vectors, scalars)

    def _drop(self, x: Tensor) -> Tensor:
        again = drawn(self.p, x.shape[:-1], (1, 0), x.shape[-1], x)
        return F.dropout(x, self.p) if again is None else x * again[1]


@path.stands_for
class ComponentMLP(nn.Module):
    """Two linear maps of components, with GELU between them.

    Args:
        geometry: an algebra without null vectors.
        channels: vector channels of input and output.
        scalars: scalar channels.
        ratio: hidden channels for each channel.
        dropout: the probability of :class:`ComponentDropout` after each map.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ComponentMLP
        >>> layer = ComponentMLP(Algebra(1, 3, 0), 6, 8)
        >>> mv, s = layer(torch.randn(4, 2, 10, 6), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([4, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int,
        *,
        ratio: int = 4,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        own = check_count("channels", channels), check_count("scalars", scalars)
        ratio = check_features("ratio", ratio)
        hidden = ratio * channels, ratio * scalars
        layers: list[nn.Module] = [
            ComponentLinear(geometry, own[0], hidden[0], own[1], hidden[1]),
            ComponentGelu(),
            ComponentLinear(geometry, hidden[0], own[0], hidden[1], own[1]),
        ]
        if dropout is not None:
            layers.insert(1, ComponentDropout(geometry, dropout))
            layers.append(ComponentDropout(geometry, dropout))
        self.layers = nn.ModuleList(layers)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layers to a network."""
        return network.calls(self.layers, x)

    def forward(self, vectors: Tensor, scalars: Tensor | None = None) -> Pair:
        """Vectors ``[dim, *batch, channels]`` and scalars ``[*batch, scalars]`` after the maps, in the same shapes."""
        pair = vectors, scalars
        for layer in self.layers:
            pair = layer(*pair)
        return pair
