"""Nonlinearities that are gated by the scalar blade, and dropout of grades."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, doors
from ...algebra import Algebra
from . import items, packed, path
from .geometry import GeometryLike, check_floating, geometry_of, indices

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
    """

    def __init__(self, activation: str = "gelu_tanh", scalar_activation: str | None = None) -> None:
        super().__init__()
        self.activation = _named("activation", activation)
        self.scalar_activation = _named("scalar_activation", scalar_activation or activation)

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        check_floating("multivectors", multivectors)
        if scalars is not None:
            check_floating("scalars", scalars)
        algebra = _some_algebra(multivectors.shape[0]) if packed.is_plain(multivectors) else None
        if algebra is not None and items.serves(algebra, multivectors, scalars):
            names = self.activation, self.scalar_activation
            return items.gated(algebra, names, (multivectors, scalars), self._composed)
        doors.check_open("ScalarGate", (multivectors, scalars), _NAMES)
        out, *given = self._composed(*(multivectors,) if scalars is None else (multivectors, scalars))
        return out, given[0] if given else None

    def _composed(self, multivectors: Tensor, *scalars: Tensor) -> tuple[Tensor, ...]:
        gate = ACTIVATIONS[self.activation](multivectors.narrow(0, 0, 1))
        return multivectors * gate, *map(ACTIVATIONS[self.scalar_activation], scalars)

    def extra_repr(self) -> str:
        return f"{self.activation!r}, scalar_activation={self.scalar_activation!r}"


@path.stands_for
class GradeDropout(nn.Module):
    """Dropout of whole grades of a multivector channel, and of scalars, in training.

    Each grade of each channel and item is zero with probability ``p`` and scaled by ``1 / (1 - p)`` otherwise.
    """

    def __init__(self, geometry: GeometryLike, p: float = 0.0) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.p = checks.number("p", p)
        if not 0 <= self.p < 1:
            raise ValueError(f"p: expected a probability below 1, got {p!r}")

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if not self.training or self.p == 0:
            return multivectors, scalars
        doors.check_open("GradeDropout", (multivectors, scalars), _NAMES)
        algebra = self.geometry.algebra
        kept = multivectors.new_ones(algebra.grade_count, *multivectors.shape[1:])
        kept = F.dropout(kept, self.p).index_select(0, indices(algebra.grades, multivectors))
        return multivectors * kept, None if scalars is None else F.dropout(scalars, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


@functools.cache
def _some_algebra(blades: int) -> Algebra | None:
    """An algebra of so many blades, if there is one: gates do not depend on the metric."""
    dim = blades.bit_length() - 1
    return Algebra(dim, 0, 0) if blades == 1 << dim and dim <= 5 else None


def _named(name: str, value: str) -> str:
    if value not in ACTIVATIONS:
        raise ValueError(f"{name}: expected one of {', '.join(ACTIVATIONS)}, got {value!r}")
    return value
