"""The functions of ``lgatr.primitives`` (2.0), for multivectors ``[..., channels, 16]`` of Cl(1,3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...nn.transformer import attend
from ...nn.transformer.geometry import constant
from .. import _primitives as shared
from .._blades_last import Pair
from .._primitives import grade_involute, grade_project, reverse
from .config import PrimitivesConfig
from .layers.linear import EquiLayerNorm, Primitives
from .options import attention_options

__all__ = [
    "PrimitivesConfig",
    "abs_squared_norm",
    "equi_layer_norm",
    "equi_linear",
    "geometric_product",
    "grade_dropout",
    "grade_involute",
    "grade_project",
    "inner_product",
    "reverse",
    "scaled_dot_product_attention",
    "sdp_attention",
]

GEOMETRY = PrimitivesConfig().geometry


def geometric_product(x: Tensor, y: Tensor, *, config: Primitives | None = None) -> Tensor:
    """The geometric product of multivectors ``[..., 16]``, whose other axes broadcast. The configuration does not change
    it."""
    return shared.product(x, y, GEOMETRY, "geometric")


def equi_linear(x: Tensor, coeffs: Tensor, *, config: Primitives) -> Tensor:
    """The equivariant linear map of multivectors ``[..., in, 16]`` with coefficients ``[out, in, 10]``, or ``[out, in,
    5]`` for the full group."""
    return shared.linear(x, coeffs, PrimitivesConfig.cast(config).geometry)


def grade_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Dropout of whole grades of multivectors ``[..., 16]``."""
    return shared.grade_dropout(x, p, training, GEOMETRY)


def inner_product(x: Tensor, y: Tensor) -> Tensor:
    """The scalar of ``reverse(x) y``, ``[..., 1]``."""
    signs = constant(GEOMETRY.norms, shared.checked("x", x))
    return (x * signs * shared.checked("y", y)).sum(-1, keepdim=True)


def abs_squared_norm(x: Tensor) -> Tensor:
    """The sum of the absolute values of the squared norms of all grades, ``[..., 1]``."""
    squares = shared.checked("x", x).square() * constant(GEOMETRY.norms, x)
    grades = squares.split([shared.GRADES.count(grade) for grade in range(5)], dim=-1)
    return torch.stack([part.sum(-1).abs() for part in grades]).sum(0).unsqueeze(-1)


def equi_layer_norm(
    x: Tensor, channel_dim: int = -2, gain: float = 1.0, epsilon: float = 0.01
) -> Tensor:
    """Multivectors divided by the root of the mean of their norms over channels."""
    return EquiLayerNorm(mv_channel_dim=channel_dim, epsilon=epsilon, gain=gain)(x)[0]


def sdp_attention(
    q_mv: Tensor,
    k_mv: Tensor,
    v_mv: Tensor,
    q_s: Tensor | None = None,
    k_s: Tensor | None = None,
    v_s: Tensor | None = None,
    **attn_kwargs: Any,
) -> Pair:
    """Attention by inner products of multivectors ``[*batch, heads, items, channels, 16]`` and of scalars ``[*batch, heads,
    items, scalars]``; for ``attn_kwargs`` see :func:`flashcliff.compat.lgatr.attention_options`."""
    given = [s is not None for s in (q_s, k_s, v_s)]
    if any(given) and not all(given):
        raise ValueError("q_s, k_s, v_s: expected either all or none of them")
    signed = shared.checked("q_mv", q_mv) * constant(GEOMETRY.norms, q_mv)
    packed = [_packed(mv, s) for mv, s in ((signed, q_s), (k_mv, k_s), (v_mv, v_s))]
    found = scaled_dot_product_attention(*packed, **attn_kwargs)
    width = 16 * v_mv.shape[-2]
    mv = found[..., :width].unflatten(-1, (-1, 16))
    return mv, None if q_s is None else found[..., width:]


def _packed(mv: Tensor, s: Tensor | None) -> Tensor:
    rows = shared.checked("multivectors", mv).flatten(-2)
    return rows if s is None else torch.cat((rows, s), dim=-1)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, **attn_kwargs: Any
) -> Tensor:
    """Attention of features ``[*batch, heads, items, features]``."""
    return attend(query, key, value, **attention_options(attn_kwargs))
