"""The functions of ``lgatr.primitives`` (1.4), for multivectors ``[..., channels, 16]`` of Cl(1,3)."""

from __future__ import annotations

from torch import Tensor

from ... import _primitives as shared
from ..._primitives import (
    gated_gelu,
    gated_relu,
    gated_sigmoid,
    gated_silu,
    grade_involute,
    grade_project,
    reverse,
)
from ..primitives import (
    abs_squared_norm,
    equi_layer_norm,
    grade_dropout,
    inner_product,
    scaled_dot_product_attention,
    sdp_attention,
)
from ..primitives import geometric_product as _product
from .config import gatr_config

__all__ = [
    "abs_squared_norm",
    "equi_layer_norm",
    "equi_linear",
    "gated_gelu",
    "gated_relu",
    "gated_sigmoid",
    "gated_silu",
    "gatr_config",
    "geometric_product",
    "grade_dropout",
    "grade_involute",
    "grade_project",
    "inner_product",
    "reverse",
    "scaled_dot_product_attention",
    "sdp_attention",
]


def geometric_product(x: Tensor, y: Tensor) -> Tensor:
    """The geometric product of multivectors ``[..., 16]``, whose other axes broadcast."""
    return _product(x, y)


def equi_linear(x: Tensor, coeffs: Tensor) -> Tensor:
    """The equivariant linear map of multivectors ``[..., in, 16]`` with coefficients ``[out, in, 10]``, or ``[out, in,
    5]`` where ``gatr_config`` asks for the full group."""
    return shared.linear(x, coeffs, gatr_config.geometry)
