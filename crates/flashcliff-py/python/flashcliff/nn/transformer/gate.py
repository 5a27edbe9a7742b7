"""Nonlinearities that are gated by the scalar blade, and dropout of grades."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, doors
from ...algebra import Algebra
from . import path
from .described import Description, Given, Tokens, drawn, run
from .geometry import Geometry, GeometryLike, check_floating, check_scalars, geometry_of, indices

__all__ = ["ACTIVATIONS", "GradeDropout", "ScalarGate"]


_NAMES = ("multivectors", "scalars")


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
}
"""Activations by name."""


@path.stands_for
class ScalarGate(nn.Module):
    """Multivectors times an activation of their scalar blade, and an activation of scalars.

    ``out[i] = activation(x[0]) x[i]``. Multivectors are ``[blades, *batch, channels]``.

    Args:
        activation: the activation of the gate, a name in ``ACTIVATIONS``.
        scalar_activation: the activation of scalar channels; the same by default. GATr and L-GATr before 2.0 have
            ``"gelu_tanh"`` and ``"gelu"``.

    Source: GATr (arXiv 2305.18415, section 3).

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ScalarGate
        >>> layer = ScalarGate()
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    def __init__(self, activation: str = "gelu_tanh", scalar_activation: str | None = None) -> None:
        super().__init__()
        self.activation = _named("activation", activation)
        self.scalar_activation = _named(
            "scalar_activation", activation if scalar_activation is None else scalar_activation
        )

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]`` after the gate, in the same
        shapes.
        """
        check_floating("multivectors", multivectors)
        if not multivectors.dim():
            raise ValueError("multivectors: expected [blades, *batch, channels], got []")
        if scalars is not None:
            check_scalars("scalars", scalars)
        given = Given((multivectors, scalars))
        # In a trace sizes are no numbers.
        traced = torch.compiler.is_compiling() or not doors.opens(multivectors)
        geometry = None if traced else _some_geometry(multivectors.shape[0])
        if geometry is None:
            return self._composed(given)
        return run(self, geometry, given, self._composed)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the gate to a network."""
        network.reads(self, "activation")
        network.reads(self, "scalar_activation")
        return network.gate(x, (self.activation, self.scalar_activation))

    def _composed(self, given: Given) -> tuple[Tensor, Tensor | None]:
        """The gate by operations that have derivatives of every order."""
        multivectors, scalars = given.here
        doors.check_open("ScalarGate", (multivectors, scalars), _NAMES)
        gate = ACTIVATIONS[self.activation](multivectors.narrow(0, 0, 1))
        return multivectors * gate, None if scalars is None else ACTIVATIONS[self.scalar_activation](scalars)

    def extra_repr(self) -> str:
        return f"{self.activation!r}, scalar_activation={self.scalar_activation!r}"


@path.stands_for
class GradeDropout(nn.Module):
    """Dropout of whole grades of a multivector channel, and of scalars, in training.

    Each grade of each channel and item is zero with probability ``p`` and scaled by ``1 / (1 - p)`` otherwise. Random numbers follow from
    the generator of PyTorch.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import GradeDropout
        >>> layer = GradeDropout(Algebra(3, 0, 1), p=0.1)
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    drops = "p"
    """The attribute that is the probability."""

    def __init__(self, geometry: GeometryLike, p: float = 0.0) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.p = checks.number("p", p)
        if not 0 <= self.p < 1:
            raise ValueError(f"p: expected a probability below 1, got {p!r}")

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]``; in training some grades and
        scalars are 0.
        """
        if not self.training or self.p == 0:
            return multivectors, scalars
        doors.check_open("GradeDropout", (multivectors, scalars), _NAMES)
        algebra = self.geometry.algebra
        grades = algebra.grade_count, multivectors.shape[-1]
        of_scalars = 0 if scalars is None else scalars.shape[-1]
        again = drawn(self.p, multivectors.shape[1:-1], grades, of_scalars, multivectors)
        if again is None:
            ones = multivectors.new_ones(algebra.grade_count, *multivectors.shape[1:])
            kept, kept_s = F.dropout(ones, self.p), None
        else:
            kept, kept_s = again[0].movedim(-2, 0), again[1]
        out = multivectors * kept.index_select(0, indices(algebra.grades, multivectors))
        if scalars is None:
            return out, None
        return out, F.dropout(scalars, self.p) if kept_s is None else scalars * kept_s

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds dropout to a network."""
        return network.dropout(self.geometry, self, x)

    def extra_repr(self) -> str:
        return f"p={self.p}"


@functools.cache
def _some_geometry(blades: int) -> Geometry | None:
    """A geometry of so many blades, if there is one: gates do not depend on the metric."""
    dim = blades.bit_length() - 1
    return Geometry(Algebra(dim, 0, 0)) if blades == 1 << dim and dim <= 5 else None


def _named(name: str, value: str) -> str:
    return checks.one_of(name, value, ACTIVATIONS)
