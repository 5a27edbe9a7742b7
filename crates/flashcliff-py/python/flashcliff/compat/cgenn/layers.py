"""CGENN's layers, with its names, arguments and layout."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ... import nn
from ..._ops import checks
from .algebra import CliffordAlgebra
from .layout import AlgebraLike, from_cgenn, reorders, to_cgenn

Device = torch.device | str | None


class _Layout(torch.nn.Module):
    """Wraps the ``forward`` of the next base class in CGENN's layout."""

    algebra: Any

    _reads_places = True
    """Whether the layer treats blades of one grade differently, and so needs flashcliff's order."""
    _reads_signs = True
    """Whether the layer changes if a blade changes its sign in input and output."""

    def _keep(self, algebra: AlgebraLike) -> None:
        """Makes CGENN's algebra, whose tables are part of the state dict, the algebra of each part.

        The parts were made with flashcliff's algebra, in whose order they compute.
        """
        if not isinstance(algebra, torch.nn.Module):
            return
        for part in list(self.modules()):
            if isinstance(part, nn.CliffordModule):
                del part.algebra
                # It comes first, as in CGENN.
                part._modules = {"algebra": algebra, **part._modules}

    def forward(self, input: Tensor) -> Tensor:
        algebra = self.algebra if self._reads_places and reorders(self.algebra) else None
        output = super().forward(from_cgenn(input, algebra, signs=self._reads_signs))
        return to_cgenn(output, algebra, signs=self._reads_signs)


def _ours(algebra: AlgebraLike) -> AlgebraLike:
    """The algebra in the form that the classes of :mod:`flashcliff.nn` take."""
    return algebra.flashcliff_algebra if isinstance(algebra, CliffordAlgebra) else algebra


def _of_cgenn(kind: type[nn.CliffordModule]) -> Any:
    """The constructor of a class, by CGENN's algebra."""
    made: Any = kind.__init__

    @functools.wraps(made)
    def init(self: Any, algebra: AlgebraLike, *given: Any, **options: Any) -> None:
        made(self, _ours(algebra), *given, **options)
        self._keep(algebra)

    return init


class MVLinear(_Layout, nn.MVLinear):
    """CGENN's ``MVLinear``: ``[batch, in_features, ..., blades]`` to ``[.., out_features, ..]``.

    ``subspaces`` is :class:`flashcliff.nn.MVLinear`'s ``per_grade``.
    """

    _reads_places = False

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
            _ours(algebra),
            in_features,
            out_features,
            bias,
            per_grade=checks.flag("subspaces", subspaces),
            device=device,
            dtype=dtype,
        )
        self._keep(algebra)
        self.subspaces = subspaces


class NormalizationLayer(_Layout, nn.GradeNorm):
    """CGENN's ``NormalizationLayer``: ``[batch, features, blades]``."""

    _reads_signs = False

    __init__ = _of_cgenn(nn.GradeNorm)


class MVLayerNorm(_Layout, nn.MVLayerNorm):
    """CGENN's ``MVLayerNorm``: ``[batch, channels, blades]``."""

    _reads_signs = False

    def __init__(
        self,
        algebra: AlgebraLike,
        channels: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(_ours(algebra), channels, device=device, dtype=dtype)
        self._keep(algebra)
        self.channels = channels


class MVSiLU(_Layout, nn.MVSiLU):
    """CGENN's ``MVSiLU``: ``[batch, channels, blades]``. ``exclude_dual`` has no effect there."""

    _reads_signs = False

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
        super().__init__(_ours(algebra), channels, invariant, device=device, dtype=dtype)
        self._keep(algebra)
        self.channels = channels
        self.exclude_dual = checks.flag("exclude_dual", exclude_dual)


class SteerableGeometricProductLayer(_Layout, nn.SteerableGeometricProduct):
    """CGENN's layer of that name: ``[batch, features, blades]``."""

    __init__ = _of_cgenn(nn.SteerableGeometricProduct)


class FullyConnectedSteerableGeometricProductLayer(
    _Layout, nn.FullyConnectedSteerableGeometricProduct
):
    """CGENN's layer of that name: ``[batch, in_features, blades]`` to ``[.., out_features, ..]``.

    ``block_bytes`` is that of :class:`flashcliff.nn.FullyConnectedSteerableGeometricProduct`.
    """

    __init__ = _of_cgenn(nn.FullyConnectedSteerableGeometricProduct)
