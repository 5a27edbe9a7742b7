"""The invariant layer norm of multivectors and scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, doors
from .._module import check_count, joined
from . import path
from .described import Description, Given, Networked, Tokens, run
from .geometry import (
    Geometry,
    GeometryLike,
    check_floating,
    check_scalars,
    constant,
    geometry_of,
    rows_by,
    without_autocast,
)

__all__ = ["EquiLayerNorm", "WithNorms", "equi_layer_norm"]


EPS = 0.01
"""The smallest mean norm of multivectors."""
SCALAR_EPS = 1e-5
"""The number that is added to the variance of scalars."""


def equi_layer_norm(x: Tensor, geometry: GeometryLike, eps: float = EPS, dim: int = -1) -> Tensor:
    """Multivectors ``[blades, *batch, channels]`` divided by the root of their mean invariant norm.

    ``x / sqrt(max(mean over channels of sum over grades |<reverse(x) x>|, eps))``. Blades with the null vector do not
    count. ``dim`` is the axis of the channels. Computed in float32 at least, also under autocast.

    Sources: GATr (arXiv 2305.18415), L-GATr (arXiv 2405.14806, section 3).
    """
    check_floating("equi_layer_norm", x)
    geometry = geometry_of(geometry)
    if x.dim() < 2 or x.shape[0] != geometry.blade_count:
        raise ValueError(
            f"multivectors: expected [{geometry.blade_count}, *batch, channels], got {list(x.shape)}"
        )
    dim = dim % x.dim()
    doors.check_open("equi_layer_norm", (x,))
    with without_autocast(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * _mean_norm(wide, geometry, dim).clamp_min(eps).rsqrt()).to(x.dtype)


def _mean_norm(wide: Tensor, geometry: Geometry, dim: int) -> Tensor:
    """The mean norm, a sum over grades of magnitudes of squared norms, which are of a mean over channels."""
    # Rounded as a channel's share of each number would be.
    rows = constant(geometry.norm_rows, wide) / wide.shape[dim]
    if rows.shape[0] == 1:
        norms = wide * wide * rows.view(-1, *[1] * (wide.dim() - 1))
        return norms.sum((0, dim), keepdim=True)
    squares = (wide * wide).reshape(len(wide), -1)
    grades = (rows @ squares).view(rows.shape[0], *wide.shape[1:])
    return torch.linalg.vector_norm(grades, 1, (0, dim), keepdim=True)


def scalar_layer_norm(x: Tensor) -> Tensor:
    """The layer norm of the last axis."""
    return F.layer_norm(x, x.shape[-1:], eps=SCALAR_EPS)


@path.stands_for
class EquiLayerNorm(Networked):
    """The invariant norm of multivectors (:func:`equi_layer_norm`) and the layer norm of scalars.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels; only for ``affine``.
        scalars: scalar channels; only for ``affine``.
        affine: whether there is a gain ``weight_mv`` ``[channels, grades]`` for each channel and grade, and
            ``weight_s`` ``[scalars]``, which start at 1 (L-GATr since 2.0).
        eps: the smallest mean norm of multivectors. The layer norm of scalars has 1e-5.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import EquiLayerNorm
        >>> layer = EquiLayerNorm(Algebra(3, 0, 1))
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    weight_mv: Tensor | None
    weight_s: Tensor | None

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int = 0,
        scalars: int = 0,
        *,
        affine: bool = False,
        eps: float = EPS,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.eps = checks.epsilon("eps", eps)
        self.weight_mv = self.weight_s = None
        if checks.flag("affine", affine):
            made: dict[str, Any] = {"device": device, "dtype": dtype}
            grades = self.geometry.algebra.grade_count
            shape = (check_count("channels", channels), grades)
            self.weight_mv = nn.Parameter(torch.ones(shape, **made))
            self.weight_s = nn.Parameter(torch.ones(check_count("scalars", scalars), **made))
            # A parameter without elements never has a gradient, which data-parallel training would wait for.
            for weight in (self.weight_mv, self.weight_s):
                weight.requires_grad_(weight.numel() > 0)

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]``, normalised, in the same
        shapes.
        """
        given = Given((multivectors, scalars))
        return run(self, self.geometry, given, self._composed)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the norm to a network."""
        network.reads(self, "geometry")
        network.reads(self, "eps")
        channels, scalars = x.channels
        grades = self.geometry.algebra.grade_count
        gains = network.optional(self, "weight_mv", (channels, grades))
        is_empty = self.weight_s is not None and not scalars and not self.weight_s.numel()
        of_scalars = None if is_empty else network.optional(self, "weight_s", (scalars,))
        return network.norm(self.geometry, x, self.eps, (gains, of_scalars))

    def _composed(self, given: Given) -> tuple[Tensor, Tensor | None]:
        """The norms, times gains, by operations that have derivatives of every order."""
        multivectors, scalars = given.here
        if scalars is not None:
            check_scalars("scalars", scalars)
            doors.check_open("EquiLayerNorm", (scalars,), ("scalars",))
        out = equi_layer_norm(multivectors, self.geometry, self.eps)
        self._check_gains(out, scalars)
        if self.weight_mv is not None:
            gains = rows_by(self.weight_mv.to(out.dtype).t(), self.geometry.algebra.grades)
            out = out * gains.view(gains.shape[0], *[1] * (out.dim() - 2), gains.shape[1])
        if scalars is None:
            return out, None
        out_s = scalar_layer_norm(scalars)
        return out, out_s if self.weight_s is None else out_s * self.weight_s.to(scalars.dtype)

    def _check_gains(self, multivectors: Tensor, scalars: Tensor | None) -> None:
        """Raises for other channels than there are gains."""
        gains = self.weight_mv
        if gains is not None and multivectors.shape[-1] != len(gains):
            blades, got = self.geometry.blade_count, list(multivectors.shape)
            raise ValueError(f"multivectors: expected [{blades}, *batch, {len(gains)}], got {got}")
        gains = self.weight_s
        if gains is not None and scalars is not None and scalars.shape[-1] != len(gains):
            raise ValueError(
                f"scalars: expected [*batch, {len(gains)}], got {list(scalars.shape)}"
            )

    def extra_repr(self) -> str:
        return joined(
            f"{self.geometry!r}, eps={self.eps}",
            "affine=True" if self.weight_mv is not None else "",
        )


class WithNorms(Networked):
    """The base of blocks: each place of a norm has its own module, or all have one, ``norm``.

    GATr and lgatr 1.4 have one. Its hooks are called, and a module in its stead is, in each place.
    """

    norm_names: tuple[str, ...]
    """The name of the norm in each place."""
    attention: Any
    crossattention: Any
    mlp: Any
    attention_sees: tuple[str, ...] = "extra", "options"
    """The arguments of attention besides items, as fields of the arguments of a call."""
    mlp_sees: tuple[str, ...] = ("reference",)
    """The arguments of the MLP besides items."""

    def add_norms(self, make: Callable[[str], nn.Module], shared: bool, affine: bool) -> None:
        """Adds the norms.

        Args:
            make: makes the norm of a name.
            shared: whether there is one.
            affine: whether norms have gains, which places do not share.
        """
        if checks.flag("shared_norm", shared) and affine:
            raise ValueError("shared_norm: expected False for norms with gains, got True")
        if shared:
            self.norm_names = ("norm",) * len(self.norm_names)
        for name in dict.fromkeys(self.norm_names):
            self.add_module(name, make(name))

    def norms(self) -> list[Any]:
        """The norm in each place."""
        return [getattr(self, name) for name in self.norm_names]

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds a block of attention and an MLP to a network."""
        network.reads(self, "norm_names")
        first, second = self.norms()
        x = network.sum(x, self._attended(network, x, first))
        return network.sum(x, self._transformed(network, x, second))

    def _attended(self, network: Description, x: Tokens, norm: Any) -> Any:
        """Adds self-attention behind a norm."""
        return network.call(self.attention, network.call(norm, x), sees=self.attention_sees)

    def _crossed(self, network: Description, x: Tokens, others: Any, norm: Any) -> Any:
        """Adds cross-attention to others behind a norm."""
        normed = network.call(norm, x)
        return network.call(self.crossattention, normed, others, sees=("context_options",))

    def _transformed(self, network: Description, x: Tokens, norm: Any) -> Any:
        """Adds the MLP behind a norm."""
        return network.call(self.mlp, network.call(norm, x), sees=self.mlp_sees)
