"""The invariant layer norm of multivectors and scalars."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, equivariant
from .._module import check_count, joined
from . import packed
from .geometry import Geometry, GeometryLike, constant, geometry_of, indices

__all__ = ["EquiLayerNorm", "equi_layer_norm"]


EPS = 0.01
"""The smallest mean norm of multivectors."""
_SCALAR_EPS = 1e-5
# From this many rows on that are no longer than this, PyTorch's layer norm, which has a block of threads for each row,
# takes longer than the operations it consists of.
_MANY, _SHORT = 1 << 14, 256


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
    """What the gradient of a norm needs besides the input."""

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


def normalised(
    x: Tensor, geometry: Geometry, eps: float, dim: int, out: Tensor | None = None
) -> tuple[Tensor, Norms]:
    """The norm by operations of PyTorch, written to ``out`` if it is given."""
    with torch.autocast(x.device.type, enabled=False):
        wide = _wide(x)
        norms = _norms(wide, geometry, dim)
        scale = norms.mean.clamp_min(eps).rsqrt()
        if out is None:
            return (wide * scale).to(x.dtype), norms
        return torch.mul(wide, scale, out=out), norms


def gradient(
    x: Tensor,
    g: Tensor,
    geometry: Geometry,
    norms: Norms | None,
    eps: float,
    dim: int,
    out: Tensor | None = None,
) -> Tensor:
    """The gradient of the norm, written to ``out`` if it is given; with derivatives of its own if ``norms`` are not
    given."""
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
            signed = torch.cat(rows).index_select(0, indices(of_blades, wide))
        share = -1 / x.shape[dim]
        if norms is None or not packed.is_plain(wide):
            return torch.addcmul(g * scale, wide, signed, value=share).to(x.dtype)
        # In the layout of the input, not in that of the gradient.
        scaled = torch.mul(g, scale, out=torch.empty_like(wide))
        if out is None:
            return scaled.addcmul_(wide, signed, value=share).to(x.dtype)
        return torch.addcmul(scaled, wide, signed, value=share, out=out)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _norms(wide: Tensor, geometry: Geometry, dim: int) -> Norms:
    """The mean norm, a sum over grades of magnitudes of squared norms, which are of a mean over channels."""
    rows = constant(_shares(geometry.norm_rows, wide.shape[dim]), wide)
    if rows.shape[0] == 1:
        norms = wide * wide * rows.view(-1, *[1] * (wide.dim() - 1))
        return Norms(norms.sum((0, dim), keepdim=True), None)
    if torch.is_grad_enabled() or not packed.is_plain(wide):
        squares = wide * wide
    else:
        # Blades first, which the matrix product reads without a copy.
        squares = torch.mul(wide, wide, out=wide.new_empty(wide.shape))
    grades = (rows @ squares.reshape(len(squares), -1)).view(rows.shape[0], *wide.shape[1:])
    return Norms(torch.linalg.vector_norm(grades, 1, (0, dim), keepdim=True), grades)


@functools.cache
def _shares(rows: tuple[tuple[float, ...], ...], channels: int) -> tuple[tuple[float, ...], ...]:
    """A channel's share of the mean."""
    return tuple(tuple(number / channels for number in row) for row in rows)


def scalar_layer_norm(x: Tensor, gain: Tensor | None = None) -> Tensor:
    """The layer norm of the last axis."""
    width = x.shape[-1]
    if width > _SHORT or x.numel() < _MANY * max(width, 1) or not packed.is_plain(x):
        return F.layer_norm(x, (width,), gain, eps=_SCALAR_EPS)
    if torch.is_autocast_enabled(x.device.type):
        # As PyTorch's.
        x = _wide(x)
    out: Tensor = _ScalarNorm.apply(x) if torch.is_grad_enabled() else scalar_normalised(x, -1)[0]
    return out if gain is None else out * gain


class _ScalarNorm(torch.autograd.Function):
    """The layer norm of the last axis as a few operations on all rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out, *moments = scalar_normalised(x, -1)
        ctx.save_for_backward(x, *moments)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, mean, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            # An operation that has derivatives of every order.
            out = F.layer_norm(x, x.shape[-1:], eps=_SCALAR_EPS)
            return torch.autograd.grad(out, x, g, create_graph=True)
        return scalar_gradient(x, g, mean, scale, -1)


def scalar_normalised(
    x: Tensor, dim: int, out: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer norm, written to ``out`` if it is given; the mean, and the reciprocal of the standard deviation."""
    wide = _wide(x)
    variance, mean = torch.var_mean(wide, dim, correction=0, keepdim=True)
    scale = variance.add_(_SCALAR_EPS).rsqrt_()
    centred = wide - mean
    if out is None:
        return centred.mul_(scale).to(x.dtype), mean, scale
    return torch.mul(centred, scale, out=out), mean, scale


def scalar_gradient(
    x: Tensor, g: Tensor, mean: Tensor, scale: Tensor, dim: int, out: Tensor | None = None
) -> Tensor:
    """The gradient of the layer norm, without derivatives of its own, written to ``out`` if it is given."""
    wide, g = _wide(x), _wide(g)
    normed = (wide - mean).mul_(scale)
    projected = (g * normed).mean(dim, keepdim=True)
    # In the layout of the input, not in that of the gradient.
    found = torch.sub(g, g.mean(dim, keepdim=True), out=torch.empty_like(wide))
    found.addcmul_(normed, projected, value=-1)
    if out is None:
        return found.mul_(scale).to(x.dtype)
    return torch.mul(found, scale, out=out)


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
        out = equi_layer_norm(multivectors, self.geometry, self.eps)
        out_s = scalars
        if scalars is not None:
            gain = None if self.weight_s is None else self.weight_s.to(scalars.dtype)
            out_s = scalar_layer_norm(scalars, gain)
        if self.weight_mv is not None:
            grades = indices(self.geometry.algebra.grades, out)
            gains = self.weight_mv.t().index_select(0, grades).to(out.dtype)
            out = out * gains.view(gains.shape[0], *[1] * (out.dim() - 2), gains.shape[1])
        return out, out_s

    def extra_repr(self) -> str:
        return joined(
            f"{self.geometry!r}, eps={self.eps}",
            "affine=True" if self.weight_mv is not None else "",
        )
