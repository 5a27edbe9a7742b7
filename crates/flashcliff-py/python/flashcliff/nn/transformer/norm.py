"""The invariant layer norm of multivectors and scalars."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, equivariant
from ..._ops.items import Gains, Pair
from .._module import check_count, joined
from . import items
from .geometry import Geometry, GeometryLike, constant, geometry_of, rows_by

__all__ = ["EquiLayerNorm", "equi_layer_norm"]


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
    geometry, dim = geometry_of(geometry), dim % x.dim()
    if torch.is_grad_enabled():
        out: Tensor = _Normed.apply(x, geometry, eps, dim)
        return out
    if equivariant.is_native(x):
        return equivariant.norm(geometry.algebra, x, eps, dim)
    return normalised(x, geometry, eps, dim)[0]


class Norms(NamedTuple):
    """The values that the gradient of a norm needs besides the input."""

    mean: Tensor
    """The mean norm."""
    grades: Tensor | None
    """The squared norms of grades, if some can be negative."""


class _Normed(torch.autograd.Function):
    """The norm with its derivative in closed form.

    With ``n = max(m, eps)``, ``m`` the mean, the gradient is ``g / sqrt(n) - x h c`` for ``c = <g, x> n^(-3/2) /
    channels``, where ``h`` is the sign of the blade times that of its grade's norm; ``c = 0`` where ``m <= eps``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, geometry: Geometry, eps: float, dim: int) -> Tensor:
        ctx.geometry, ctx.eps, ctx.dim = geometry, eps, dim
        if equivariant.is_native(x):
            ctx.save_for_backward(x)
            return equivariant.norm(geometry.algebra, x, eps, dim)
        out, norms = normalised(x, geometry, eps, dim)
        ctx.save_for_backward(x, *norms)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, *norms = ctx.saved_tensors
        if torch.is_grad_enabled():
            # These operations have derivatives of their own.
            found = gradient(x, g, ctx.geometry, None, ctx.eps, ctx.dim)
        elif norms:
            found = gradient(x, g, ctx.geometry, Norms(*norms), ctx.eps, ctx.dim)
        else:
            found = equivariant.norm_gradient(ctx.geometry.algebra, x, g, ctx.eps, ctx.dim)
        return found, None, None, None


def normalised(x: Tensor, geometry: Geometry, eps: float, dim: int) -> tuple[Tensor, Norms]:
    """The norm by operations of PyTorch."""
    with torch.autocast(x.device.type, enabled=False):
        wide = _wide(x)
        norms = _norms(wide, geometry, dim)
        return (wide * norms.mean.clamp_min(eps).rsqrt()).to(x.dtype), norms


def gradient(
    x: Tensor,
    g: Tensor,
    geometry: Geometry,
    norms: Norms | None,
    eps: float,
    dim: int,
) -> Tensor:
    """The gradient of the norm, with derivatives of its own if ``norms`` are not given."""
    with torch.autocast(x.device.type, enabled=False):
        wide, g = _wide(x), _wide(g)
        mean, grades = _norms(wide, geometry, dim) if norms is None else norms
        scale = mean.clamp_min(eps).rsqrt()
        projected = (g * wide).sum((0, dim), keepdim=True)
        # The derivative of the largest of two is zero where eps is the larger.
        factor = projected * scale.pow(3) * (mean > eps)
        if grades is None:
            counted = constant(geometry.norm_rows, wide)
            signed = factor * counted.view(-1, *[1] * (x.dim() - 1))
        else:
            of_grades = grades.sign() * factor
            of_blades = geometry.norm_signs
            rows = [of_grades, -of_grades]
            if max(of_blades) == 2 * len(of_grades):
                rows.append(torch.zeros_like(of_grades[:1]))
            signed = rows_by(torch.cat(rows), of_blades)
        return torch.addcmul(g * scale, wide, signed, value=-1 / x.shape[dim]).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _norms(wide: Tensor, geometry: Geometry, dim: int) -> Norms:
    """The mean norm, a sum over grades of magnitudes of squared norms, which are of a mean over channels."""
    rows = constant(_shares(geometry.norm_rows, wide.shape[dim]), wide)
    if rows.shape[0] == 1:
        norms = wide * wide * rows.view(-1, *[1] * (wide.dim() - 1))
        return Norms(norms.sum((0, dim), keepdim=True), None)
    squares = (wide * wide).reshape(len(wide), -1)
    grades = (rows @ squares).view(rows.shape[0], *wide.shape[1:])
    return Norms(torch.linalg.vector_norm(grades, 1, (0, dim), keepdim=True), grades)


@functools.cache
def _shares(rows: tuple[tuple[float, ...], ...], channels: int) -> tuple[tuple[float, ...], ...]:
    """A channel's share of the mean."""
    return tuple(tuple(number / channels for number in row) for row in rows)


def scalar_layer_norm(x: Tensor) -> Tensor:
    """The layer norm of the last axis."""
    return F.layer_norm(x, x.shape[-1:], eps=SCALAR_EPS)


class EquiLayerNorm(nn.Module):
    """The invariant norm of multivectors (:func:`equi_layer_norm`) and the layer norm of scalars.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels; only for ``affine``.
        scalars: scalar channels; only for ``affine``.
        affine: whether there is a gain ``weight_mv`` ``[channels, grades]`` for each channel and grade, and
            ``weight_s`` ``[scalars]``, which start at 1 (L-GATr since 2.0).
        eps: the smallest mean norm of multivectors. The layer norm of scalars has 1e-5.
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
        algebra, pair = self.geometry.algebra, (multivectors, scalars)
        if items.serves(algebra, multivectors, scalars):
            eps, gains = (self.eps, SCALAR_EPS), self._gains(*pair)
            return items.normalised(algebra, eps, gains, pair, self._composed)
        given = (multivectors,) if scalars is None else (multivectors, scalars)
        out, *of_scalars = self._composed(*self._gains(*pair), *given)
        return out, of_scalars[0] if of_scalars else None

    def of_sum(self, pair: Pair, added: Pair) -> tuple[Pair, Pair]:
        """The sum of two pairs of multivectors and scalars, and its norm; ``None`` stands for scalars of zero."""
        algebra = self.geometry.algebra
        (mv, s), (more, more_s) = pair, added
        alike = mv.shape == more.shape and (s is None) == (more_s is None)
        if alike and items.serves(algebra, mv, s, more, more_s) and not self._is_followed():
            eps, gains = (self.eps, SCALAR_EPS), self._gains(*pair)
            return items.normalised_sum(algebra, eps, gains, pair, added, self._composed)
        if s is None or more_s is None:
            total = mv + more, more_s if s is None else s
        else:
            total = mv + more, s + more_s
        return total, self(*total)

    def _is_followed(self) -> bool:
        """Whether something follows the calls of this layer."""
        return bool(self._forward_pre_hooks or self._forward_hooks or self._backward_hooks)

    def _gains(self, multivectors: Tensor, scalars: Tensor | None) -> Gains:
        """The gains in the types of the tensors that they scale."""
        gain, gain_s = self.weight_mv, self.weight_s
        return (
            None if gain is None else gain.to(multivectors.dtype),
            None if gain_s is None or scalars is None else gain_s.to(scalars.dtype),
        )

    def _composed(
        self, gain: Tensor | None, gain_s: Tensor | None, multivectors: Tensor, *scalars: Tensor
    ) -> tuple[Tensor, ...]:
        """The norms, times gains, by operations that have derivatives of every order."""
        out = equi_layer_norm(multivectors, self.geometry, self.eps)
        if gain is not None:
            gains = rows_by(gain.t(), self.geometry.algebra.grades)
            out = out * gains.view(gains.shape[0], *[1] * (out.dim() - 2), gains.shape[1])
        if not scalars:
            return (out,)
        out_s = scalar_layer_norm(*scalars)
        return out, out_s if gain_s is None else out_s * gain_s

    def extra_repr(self) -> str:
        return joined(
            f"{self.geometry!r}, eps={self.eps}",
            "affine=True" if self.weight_mv is not None else "",
        )
