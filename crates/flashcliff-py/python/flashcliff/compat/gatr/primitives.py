"""The functions of ``gatr.primitives``, for multivectors ``[..., channels, 16]`` of Cl(3,0,1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ... import functional
from ...nn import transformer
from ...nn.transformer.geometry import constant
from .. import _primitives as shared
from .._blades_last import Pair
from .._primitives import (
    gated_gelu,
    gated_relu,
    gated_sigmoid,
    grade_involute,
    grade_project,
    reverse,
)
from .config import GEOMETRY
from .layers.linear import EquiLayerNorm
from .masks import attention_options
from .reference import EUCLIDEAN

__all__ = [
    "NUM_PIN_LINEAR_BASIS_ELEMENTS",
    "dual",
    "equi_layer_norm",
    "equi_linear",
    "equivariant_join",
    "gated_gelu",
    "gated_gelu_divide",
    "gated_relu",
    "gated_sigmoid",
    "geometric_attention",
    "geometric_product",
    "grade_dropout",
    "grade_involute",
    "grade_project",
    "inner_product",
    "join_norm",
    "norm",
    "outer_product",
    "pga_attention",
    "pin_invariants",
    "reverse",
    "sdp_attention",
]

NUM_PIN_LINEAR_BASIS_ELEMENTS = GEOMETRY.plan.count
"""The number of linear maps of an equivariant layer."""

# The blades without e0.
_EUCLIDEAN = [blade for blade, square in enumerate(GEOMETRY.norms) if square]
_WITHOUT_POINT = [blade for blade in _EUCLIDEAN if blade != EUCLIDEAN]


def geometric_product(x: Tensor, y: Tensor) -> Tensor:
    """The geometric product of multivectors ``[..., 16]``, whose other axes broadcast."""
    return shared.product(x, y, GEOMETRY, "geometric")


def outer_product(x: Tensor, y: Tensor) -> Tensor:
    """The exterior product of multivectors ``[..., 16]``, whose other axes broadcast."""
    return shared.product(x, y, GEOMETRY, "exterior")


def dual(x: Tensor) -> Tensor:
    """The right complement of multivectors ``[..., 16]``."""
    rows = shared.checked("x", x).reshape(-1, 1, 16).movedim(-1, 0)
    return functional.dual(rows, GEOMETRY.algebra).movedim(0, -1).reshape(x.shape)


def equivariant_join(x: Tensor, y: Tensor, reference: Tensor) -> Tensor:
    """The join of multivectors ``[..., 16]``, times the component of the reference at ``e1 e2 e3``."""
    component = shared.checked("reference", reference)[..., EUCLIDEAN, None]
    return component * dual(outer_product(dual(x), dual(y)))


def join_norm(
    x: Tensor,
    y: Tensor,
    square: bool = False,
    channel_sum: bool = False,
    channel_weights: Tensor | None = None,
) -> Tensor:
    """The norm of the join of multivectors ``[..., 16]``, ``[..., 1]``.

    Args:
        x: multivectors.
        y: others; all axes but the last broadcast.
        square: whether the square of the norm is wanted.
        channel_sum: whether the squares are summed over the last axis but one.
        channel_weights: factors of the squares in this sum, ``[..., channels]``.
    """
    found = dual(outer_product(dual(x), dual(y)))
    squares = inner_product(found, found)[..., 0]
    if channel_sum:
        squares = squares if channel_weights is None else squares * channel_weights
        squares = squares.sum(-1)
    return (squares if square else squares.sqrt()).unsqueeze(-1)


def equi_linear(x: Tensor, coeffs: Tensor) -> Tensor:
    """The equivariant linear map of multivectors ``[..., in, 16]`` with coefficients ``[out, in, 9]``."""
    return shared.linear(x, coeffs, GEOMETRY)


def grade_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Dropout of whole grades of multivectors ``[..., 16]``."""
    return shared.grade_dropout(x, p, training, GEOMETRY)


def inner_product(x: Tensor, y: Tensor) -> Tensor:
    """The scalar of ``reverse(x) y``, ``[..., 1]``, to which blades with ``e0`` add nothing."""
    signs = constant(GEOMETRY.norms, shared.checked("x", x))
    return (x * signs * shared.checked("y", y)).sum(-1, keepdim=True)


def norm(x: Tensor) -> Tensor:
    """The root of the inner product of multivectors with themselves, ``[..., 1]``."""
    return inner_product(x, x).clamp(0.0).sqrt()


def pin_invariants(x: Tensor) -> Tensor:
    """The scalar, and the norms of all other grades, ``[..., 5]``."""
    return torch.cat((shared.checked("x", x)[..., :1], norm(grade_project(x))[..., 1:, 0]), dim=-1)


def equi_layer_norm(
    x: Tensor, channel_dim: int = -2, gain: float = 1.0, epsilon: float = 0.01
) -> Tensor:
    """Multivectors divided by the root of the mean of their squared norms over channels, times a gain."""
    found = EquiLayerNorm(mv_channel_dim=channel_dim, epsilon=epsilon)(x)[0]
    return found if gain == 1 else gain * found


def gated_gelu_divide(x: Tensor, gates: Tensor) -> Tensor:
    """Tensors, such as multivectors, times the GELU, with tanh, of gates ``[..., 1]`` divided by the gates."""
    slope = 2 * math.sqrt(2 / math.pi)
    return torch.sigmoid(slope * (gates + 0.044715 * gates**3)) * shared.tensor("x", x)


def sdp_attention(
    q_mv: Tensor, k_mv: Tensor, v_mv: Tensor, q_s: Tensor, k_s: Tensor, v_s: Tensor
) -> Pair:
    """Attention by inner products of multivectors ``[*batch, items, channels, 16]`` and of scalars ``[*batch, items,
    scalars]``."""
    query, key = (
        torch.cat((shared.checked("multivectors", mv)[..., _EUCLIDEAN].flatten(-2), s), dim=-1)
        for mv, s in ((q_mv, q_s), (k_mv, k_s))
    )
    return _attended(query, key, v_mv, v_s, {})


def pga_attention(
    q_mv: Tensor,
    k_mv: Tensor,
    v_mv: Tensor,
    q_s: Tensor,
    k_s: Tensor,
    v_s: Tensor,
    weights: Sequence[Tensor] | Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> Pair:
    """Attention by inner products, and minus norms of joins; it makes all pairs of items, which needs much memory.

    Args:
        q_mv: multivectors ``[*batch, items, channels, 16]`` of the queries.
        k_mv: multivectors ``[*batch, others, channels, 16]`` of the keys.
        v_mv: multivectors of the values.
        q_s: scalars ``[*batch, items, scalars]`` of the queries.
        k_s: scalars of the keys.
        v_s: scalars of the values.
        weights: three factors, none negative: of inner products, in the norm's sum over channels, and of products of
            scalars.
        attention_mask: booleans that broadcast to ``[*batch, items, others]``; true: may attend.
    """
    if weights is not None and any(bool((weight < 0).any()) for weight in weights):
        raise ValueError("weights: expected numbers that are not negative")
    of_inner, of_join, of_scalars = (1.0, None, 1.0) if weights is None else weights
    query, key = q_mv.unsqueeze(-3), k_mv.unsqueeze(-4)
    logits = (of_inner * inner_product(query, key)[..., 0]).sum(-1)
    logits = logits - join_norm(query, key, False, True, of_join)[..., 0]
    logits = logits + (of_scalars * q_s.unsqueeze(-2) * k_s.unsqueeze(-3)).sum(-1)
    if attention_mask is not None:
        logits = logits.masked_fill(~attention_mask, -math.inf)
    features = 2 * len(_EUCLIDEAN) * q_mv.shape[-2] + q_s.shape[-1]
    shares = (logits / math.sqrt(features)).softmax(-1)
    mv = (shares @ v_mv.flatten(-2)).unflatten(-1, (-1, 16))
    return mv, shares @ v_s


def geometric_attention(
    q_mv: Tensor,
    k_mv: Tensor,
    v_mv: Tensor,
    q_s: Tensor,
    k_s: Tensor,
    v_s: Tensor,
    normalizer: Callable[[Tensor], Tensor],
    weights: Tensor | None = None,
    attn_mask: Any = None,
) -> Pair:
    """Attention by inner products, and minus squared distances of points.

    Args:
        q_mv: multivectors ``[*batch, heads, items, channels, 16]`` of the queries.
        k_mv: multivectors of the keys; one head stands for all.
        v_mv: multivectors of the values.
        q_s: scalars ``[*batch, heads, items, scalars]`` of the queries.
        k_s: scalars of the keys.
        v_s: scalars of the values.
        normalizer: the factor of the trivector of a point, from its weight ``[..., 1]``.
        weights: factors of the distances, which broadcast to ``[heads, items, channels]``.
        attn_mask: a mask, see :func:`flashcliff.compat.gatr.attention_options`.
    """
    packed = []
    for mv, s, of_query in ((q_mv, q_s, True), (k_mv, k_s, False)):
        point = shared.checked("multivectors", mv)[..., 11:15]
        point = point * normalizer(point[..., 3:])
        place, weight = point[..., :3], point[..., 3:]
        square = place.square().sum(-1, keepdim=True)
        if of_query:
            features = torch.cat((square, weight.square(), place * weight), dim=-1)
            if weights is not None:
                features = features * weights[..., None].to(features.dtype)
        else:
            features = torch.cat((-weight.square(), -square, 2 * place * weight), dim=-1)
        inner = mv[..., _WITHOUT_POINT]
        packed.append(torch.cat((inner.flatten(-2), features.flatten(-2), s), dim=-1))
    shape = (*q_mv.shape[:-4], q_mv.shape[-3])
    options = attention_options(attn_mask, shape=shape, keys=k_mv.shape[-3])
    return _attended(packed[0], packed[1], v_mv, v_s, options)


def _attended(query: Tensor, key: Tensor, mv: Tensor, s: Tensor, options: dict[str, Any]) -> Pair:
    value = torch.cat((shared.checked("v_mv", mv).flatten(-2), s), dim=-1)
    found = transformer.attend(query, key, value, **options)
    width = 16 * mv.shape[-2]
    return found[..., :width].unflatten(-1, (-1, 16)), found[..., width:]
