"""The invariant layer norm of multivectors and scalars."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, equivariant
from .._module import check_count, joined
from .geometry import Geometry, GeometryLike, constant, geometry_of, indices

__all__ = ["EquiLayerNorm", "equi_layer_norm"]


def equi_layer_norm(x: Tensor, geometry: GeometryLike, eps: float = 0.01, dim: int = -1) -> Tensor:
    """Multivectors ``[blades, *batch, channels]`` divided by the root of their mean invariant norm.

    ``x / sqrt(max(mean over channels of sum over grades |<reverse(x) x>|, eps))``. Blades with the null vector do not
    count. ``dim`` is the axis of the channels. Computed in float32 at least, also under autocast.

    Sources: GATr (arXiv 2305.18415), L-GATr (arXiv 2405.14806, section 3).
    """
    if torch.is_grad_enabled():
        out: Tensor = _Normed.apply(x, geometry_of(geometry), eps, dim % x.dim())
        return out
    return _normed(x, geometry_of(geometry), eps, dim % x.dim())


class _Normed(torch.autograd.Function):
    """The norm with its derivative in closed form.

    With ``n = max(m, eps)``, ``m`` the mean, the gradient is ``g / sqrt(n) - x h c`` for ``c = <g, x> n^(-3/2) /
    channels``, where ``h`` is the sign of the blade times that of its grade's norm; ``c = 0`` where ``m <= eps``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, geometry: Geometry, eps: float, dim: int) -> Tensor:
        ctx.geometry, ctx.eps, ctx.dim = geometry, eps, dim
        ctx.save_for_backward(x)
        return _normed(x, geometry, eps, dim)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not equivariant.is_native(x):
            # These operations have derivatives of their own.
            gradient = _gradient(x, g, ctx.geometry, ctx.eps, ctx.dim)
        else:
            gradient = equivariant.norm_gradient(ctx.geometry.algebra, x, g, ctx.eps, ctx.dim)
        return gradient, None, None, None


def _normed(x: Tensor, geometry: Geometry, eps: float, dim: int) -> Tensor:
    if equivariant.is_native(x):
        return equivariant.norm(geometry.algebra, x, eps, dim)
    with torch.autocast(x.device.type, enabled=False):
        wide, _, mean = _mean(x, geometry, dim)
        return (wide * mean.clamp_min(eps).rsqrt()).to(x.dtype)


def _gradient(x: Tensor, g: Tensor, geometry: Geometry, eps: float, dim: int) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        wide, norms, mean = _mean(x, geometry, dim)
        scale = mean.clamp_min(eps).rsqrt()
        g = g.to(wide.dtype)
        projected = (g * wide).sum((0, dim), keepdim=True)
        factor = projected * scale * scale * scale / x.shape[dim]
        # The derivative of the largest of two is zero where eps is the larger.
        factor = torch.where(mean > eps, factor, 0.0)
        rows = constant(geometry.norm_rows, wide)
        if rows.shape[0] == 1:
            weighted = wide * rows[0].view(-1, *[1] * (x.dim() - 1))
        else:
            weighted = wide * torch.einsum("rb,r...->b...", rows, norms.sign())
        return (g * scale - weighted * factor).to(x.dtype)


def _mean(x: Tensor, geometry: Geometry, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The input in float32 at least, the norm of each grade, and the mean over channels of their sum."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows = constant(geometry.norm_rows, wide)
    norms = (rows @ (wide * wide).reshape(x.shape[0], -1)).view(rows.shape[0], *x.shape[1:])
    total = norms.abs() if rows.shape[0] > 1 else norms
    return wide, norms, total.sum((0, dim), keepdim=True) / x.shape[dim]


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
        eps: float = 0.01,
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
        out_s = None if scalars is None else F.layer_norm(scalars, scalars.shape[-1:])
        if self.weight_mv is not None and self.weight_s is not None:
            grades = indices(self.geometry.algebra.grades, out)
            gains = self.weight_mv.t().index_select(0, grades).to(out.dtype)
            out = out * gains.view(gains.shape[0], *[1] * (out.dim() - 2), gains.shape[1])
            if out_s is not None:
                out_s = out_s * self.weight_s.to(out_s.dtype)
        return out, out_s

    def extra_repr(self) -> str:
        return joined(
            f"{self.geometry!r}, eps={self.eps}",
            "affine=True" if self.weight_mv is not None else "",
        )
