"""CGENN's layers, with its names, arguments and layout."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import nn
from ..._ops import checks
from ...algebra import Algebra
from .algebra import CliffordAlgebra
from .layout import from_cgenn, to_cgenn

Device = torch.device | str | None
AlgebraLike = CliffordAlgebra | Algebra


class _Layout(torch.nn.Module):
    """Wraps the ``forward`` of the class behind it in CGENN's layout."""

    def forward(self, input: Tensor) -> Tensor:
        return to_cgenn(super().forward(from_cgenn(input)))


class MVLinear(_Layout, nn.MVLinear):
    """CGENN's ``MVLinear``: ``[batch, in_features, ..., blades]`` to ``[.., out_features, ..]``.

    ``subspaces`` is :class:`flashcliff.nn.MVLinear`'s ``per_grade``.
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        out_features: int,
        subspaces: bool = True,
        bias: bool = True,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            algebra,
            in_features,
            out_features,
            bias,
            per_grade=checks.flag("subspaces", subspaces),
            device=device,
            dtype=dtype,
        )
        self.subspaces = subspaces


class NormalizationLayer(_Layout, nn.GradeNorm):
    """CGENN's ``NormalizationLayer(algebra, features, init=0)``: ``[batch, features, blades]``."""


class MVLayerNorm(_Layout, nn.MVLayerNorm):
    """CGENN's ``MVLayerNorm``: ``[batch, channels, blades]``."""

    def __init__(
        self,
        algebra: AlgebraLike,
        channels: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra, channels, device=device, dtype=dtype)
        self.channels = channels


class MVSiLU(_Layout, nn.MVSiLU):
    """CGENN's ``MVSiLU``: ``[batch, channels, blades]``. ``exclude_dual`` has no effect there."""

    def __init__(
        self,
        algebra: AlgebraLike,
        channels: int,
        invariant: str = "mag2",
        exclude_dual: bool = False,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra, channels, invariant, device=device, dtype=dtype)
        self.channels = channels
        self.exclude_dual = checks.flag("exclude_dual", exclude_dual)


class SteerableGeometricProductLayer(_Layout, nn.SteerableGeometricProduct):
    """CGENN's layer of that name: ``[batch, features, blades]``.

    ``(algebra, features, include_first_order=True, normalization_init=0)``
    """


class FullyConnectedSteerableGeometricProductLayer(
    _Layout, nn.FullyConnectedSteerableGeometricProduct
):
    """CGENN's layer of that name: ``[batch, in_features, blades]`` to ``[.., out_features, ..]``.

    ``(algebra, in_features, out_features, include_first_order=True, normalization_init=0)``
    """
