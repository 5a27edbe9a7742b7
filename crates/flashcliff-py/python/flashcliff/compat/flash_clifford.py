"""flash-clifford's layer and fused functions, with its names, arguments, shapes and numbers.

Tensors are ``[blades, batch, features]``; Cl(2,0) has 4 blades, 3 grades and 10 paths, Cl(3,0) has
8, 4 and 20. State dicts load both ways. There is more here: any batch size and feature count works, not
only multiples of the original's blocks; ``float64``, ``bfloat16`` and ``float16`` work too.

Source: github.com/maxxxzdn/flash-clifford.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import functional as F
from .._ops import checks
from ..algebra import Algebra
from ..nn.flash_clifford import FlashCliffordLayer

__all__ = [
    "Layer",
    "fused_gelu_fcgp_norm_2d",
    "fused_gelu_fcgp_norm_3d",
    "fused_gelu_sgp_norm_2d",
    "fused_gelu_sgp_norm_3d",
]

_ALGEBRAS = {dims: Algebra(dims, 0, 0) for dims in (2, 3)}


class Layer(FlashCliffordLayer):
    """flash-clifford's ``Layer``: linear map by grade, gated product, RMS norm by grade.

    Args:
        n_features: channels.
        dims: 2 or 3.
        normalize: whether it ends with the norm.
        use_fc: ``gp_weight`` ``[paths, n_features, n_features]`` instead of
            ``[n_features, paths]``.
        bias: ``"every_blade"``, as in the original, adds ``linear_bias`` to every blade. **That breaks
            equivariance** as soon as training moves it off zero; ``"scalar"`` does not. Both have
            the same state dict.
        block_bytes: as for :class:`flashcliff.nn.FlashCliffordLayer`.

    Input and output are ``[2**dims, *batch, n_features]``.
    """

    weight_expansion: Tensor
    _warns_of_bias = False

    def __init__(
        self,
        n_features: int,
        dims: int,
        normalize: bool = True,
        use_fc: bool = False,
        *,
        bias: str = "every_blade",
        block_bytes: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if checks.integer("dims", dims) not in _ALGEBRAS:
            raise ValueError(f"dims: expected 2 or 3, got {dims!r}")
        super().__init__(
            _ALGEBRAS[dims],
            n_features,
            norm=_norm(normalize),
            fully_connected=checks.flag("use_fc", use_fc),
            bias_mode=bias,
            block_bytes=block_bytes,
            device=device,
            dtype=dtype,
        )
        # Nothing reads the grades of the blades here; the original's state dict has them.
        grades = [grade for grade in range(dims + 1) for _ in range(math.comb(dims, grade))]
        self.register_buffer("weight_expansion", torch.tensor(grades, device=device))


def fused_gelu_sgp_norm_2d(x: Tensor, y: Tensor, weight: Tensor, normalize: bool = True) -> Tensor:
    """The gated geometric product of Cl(2,0), channel by channel, and its norm.

    ``x``, ``y`` and the result are ``[4, batch, features]``, ``weight`` is ``[features, 10]``.
    """
    return F.sgp_norm(x, y, weight, _ALGEBRAS[2], norm=_norm(normalize))


def fused_gelu_sgp_norm_3d(x: Tensor, y: Tensor, weight: Tensor, normalize: bool = True) -> Tensor:
    """The gated geometric product of Cl(3,0), channel by channel, and its norm.

    ``x``, ``y`` and the result are ``[8, batch, features]``, ``weight`` is ``[features, 20]``.
    """
    return F.sgp_norm(x, y, weight, _ALGEBRAS[3], norm=_norm(normalize))


def fused_gelu_fcgp_norm_2d(x: Tensor, y: Tensor, weight: Tensor, normalize: bool = True) -> Tensor:
    """The gated geometric product of Cl(2,0), over all channels, and its norm.

    ``x``, ``y`` and the result are ``[4, batch, features]``, ``weight`` is
    ``[10, features, features]``: path, input, output.
    """
    return F.fcgp_norm(x, y, weight, _ALGEBRAS[2], norm=_norm(normalize))


def fused_gelu_fcgp_norm_3d(x: Tensor, y: Tensor, weight: Tensor, normalize: bool = True) -> Tensor:
    """The gated geometric product of Cl(3,0), over all channels, and its norm.

    ``x``, ``y`` and the result are ``[8, batch, features]``, ``weight`` is
    ``[20, features, features]``: path, input, output.
    """
    return F.fcgp_norm(x, y, weight, _ALGEBRAS[3], norm=_norm(normalize))


def _norm(normalize: bool) -> str:
    return "rms" if checks.flag("normalize", normalize) else "none"
